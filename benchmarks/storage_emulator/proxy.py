"""The proxy: an http server on the loopback interface that delays, throttles and damages what its upstream answers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from benchmarks.storage_emulator.conditions import QUIET, Conditions, Treatment
from benchmarks.storage_emulator.upstream import Request, Response, Upstream, read_head

_HOST = "127.0.0.1"
_CHUNK_BYTES = 1 << 14
_START_TIMEOUT_S = 10.0
_SILENCE_S = 600.0


class Server:
    """A running proxy, in a thread of its own.

    conditions: may be replaced at any time. counts: requests, bytes of bodies, and faults by name. open: requests
    without a response so far. most_open: the most of them at once.
    """

    def __init__(self, conditions: Conditions, upstream: Upstream, seed: int) -> None:
        self.conditions = conditions
        self.counts: Counter[str] = Counter()
        self.open = 0
        self.most_open = 0
        self.url = ""
        self._upstream = upstream
        self._seed = seed
        self._sent: Counter[str] = Counter()
        self._began = time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="storage emulator", daemon=True)

    @property
    def seconds(self) -> float:
        """Seconds since the start of the first period of bursts."""
        return time.monotonic() - self._began

    @property
    def is_burst(self) -> bool:
        """Whether a burst lasts at this moment."""
        return self.conditions.is_burst(self.seconds)

    def restart(self) -> None:
        """Begin a new period of bursts, and count from zero."""
        self._began = time.monotonic()
        self.counts.clear()
        self._sent.clear()
        self.most_open = self.open

    def start(self) -> None:
        """Listen on a free port."""
        self._thread.start()
        assert self._ready.wait(_START_TIMEOUT_S), "the storage emulator did not start"

    def stop(self) -> None:
        """End the thread and all connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._converse, _HOST, 0))
        self.url = f"http://{_HOST}:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                first, headers = await read_head(reader)
                method, target, _ = first.split(" ", 2)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.open += 1
                self.most_open = max(self.most_open, self.open)
                try:
                    await self._answer(Request(method, target, headers, body), writer)
                finally:
                    self.open -= 1
        writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        times = self._sent[request.key]
        self._sent[request.key] += 1
        treatment = self.conditions.treatment(self._seed, request.key, times, self.seconds)
        self.counts["requests"] += 1
        if treatment.fault:
            self.counts[treatment.fault] += 1
        began = time.monotonic()
        response = await self._upstream(request)
        await asyncio.sleep(max(0.0, treatment.latency_s - (time.monotonic() - began)))
        if treatment.fault == "silent":
            await asyncio.sleep(_SILENCE_S)
        await self._send(_changed(response, treatment), treatment, request.method, writer)

    async def _send(self, response: Response, treatment: Treatment, method: str, writer: asyncio.StreamWriter) -> None:
        length = len(response.body) if response.num_bytes is None or response.body else response.num_bytes
        headers = {**response.headers, "Content-Length": str(length)}
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        body = b"" if method == "HEAD" else response.body
        is_cut = treatment.fault == "cut"
        if is_cut:
            body = body[: int(treatment.place * len(body))]
        self.counts["bytes"] += len(body)
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        rate = self.conditions.bytes_per_s
        size = _CHUNK_BYTES if rate else max(len(body), 1)
        for start in range(0, len(body), size):
            chunk = body[start : start + size]
            writer.write(chunk)
            await writer.drain()
            if rate:
                await asyncio.sleep(len(chunk) / rate)
        await writer.drain()
        if is_cut:
            writer.transport.abort()
            raise ConnectionAbortedError


def _changed(response: Response, treatment: Treatment) -> Response:
    """Return the response after a fault; a cut is made while it is sent."""
    body = response.body
    if treatment.fault == "unavailable":
        return Response(503, b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>")
    if treatment.fault == "truncated" and body:
        return Response(response.status, body[: int(treatment.place * len(body))], response.headers)
    if treatment.fault == "wrong_bytes" and body:
        damaged = bytearray(body)
        damaged[int(treatment.place * len(body))] ^= 0x55
        return Response(response.status, bytes(damaged), response.headers)
    return response


@contextmanager
def serve(conditions: Conditions, upstream: Upstream, seed: int = 0) -> Iterator[Server]:
    """Yield a running server in front of `upstream`, on a free port of the loopback interface."""
    server = Server(conditions or QUIET, upstream, seed)
    server.start()
    try:
        yield server
    finally:
        server.stop()
