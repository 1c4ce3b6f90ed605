"""What comes from a network: frames of the control channel, heartbeats, and requests to the server of samples."""

import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

from paragan.core.errors import RankError
from paragan.extensions.grid.transports.control_connection import ControlConnection
from paragan.extensions.grid.transports.signed_frames import HEAD, HELLO_BYTES, UP, FrameSigner, session_key
from paragan.extensions.grid.workers.handshake import has_ended, worker_info
from paragan.extensions.grid.workers.membership import Membership
from paragan.extensions.serving.sample_server import SampleServer
from paragan.runs.open_generator import open_generator
from tests.attacks import small_run
from tests.attacks.mutations import dump, mutate_bytes, mutate_json

_TOKEN = "5e" * 32
_WAIT_S = 5.0
_KEY = session_key(_TOKEN)
_BEAT = {"kind": "beat", "state": "processing", "progress": 7}
_ANSWERS = (_BEAT, {"kind": "failed", "reason": "no memory", "code": 2}, {"kind": "unreachable", "reason": "a peer"})


def fuzz_control(draws: Random, folder: Path) -> None:
    """Bytes of a frame, or the JSON of one that is signed; and the bytes of a handshake."""
    if draws.random() < 0.5:
        body = dump(mutate_json(draws, {"kind": "go", "until": 3, "ranks": [0, 1], "peers": {"a": [1.5, None]}}))
        signer = FrameSigner(_KEY, UP)
        frame = HEAD.pack(len(body), signer._signature(body)) + body
        frame = mutate_bytes(draws, frame) if draws.random() < 0.4 else frame
        signer = FrameSigner(_KEY, UP, HELLO_BYTES)
        signer.unpack(_padded(frame), frame[HEAD.size :][: signer.body_size(_padded(frame))])
        return
    ours, remote = socket.socketpair()
    with closing(remote):
        line = ControlConnection(ours, "fuzzed")
        hello = FrameSigner(_KEY, UP).pack({"nonce": "00" * 32, "about": {}})
        remote.sendall(mutate_bytes(draws, hello))
        remote.shutdown(socket.SHUT_WR)
        line.accept_handshake(_TOKEN, time.monotonic() + _WAIT_S)
        line.close()
    raise RankError(line.disconnect_reason or "a handshake without the token was accepted")


def _padded(frame: bytes) -> bytes:
    return frame[: HEAD.size].ljust(HEAD.size, b"\0")


class _Line:
    """A connection whose peer is known and sends `messages`."""

    disconnect_reason = None
    peer_address = "fuzzed"

    def __init__(self, messages: list[Any], about: dict[str, Any]) -> None:
        self.messages, self.peer_info = messages, about

    def receive(self, wait_s: float) -> Any:
        return self.messages.pop(0) if self.messages else None

    def send(self, kind: str, **values: Any) -> None:
        pass

    def begin_close(self) -> None:
        pass

    close = begin_close


def fuzz_heartbeat(draws: Random, folder: Path) -> None:
    """Heartbeats and other messages of a worker that knows the token, with values of any type."""
    messages = [mutate_json(draws, draws.choice(_ANSWERS)) for _ in range(3)]
    messages = [
        m for m in messages if isinstance(m, dict) and isinstance(m.get("kind"), str)
    ]  # others end a connection
    about = mutate_json(draws, worker_info("cpu"))
    about = about if isinstance(about, dict) else {}
    lines = [_Line(messages, about)]
    membership = Membership(
        accept=lambda: lines.pop() if lines else None, log=lambda text: None, heartbeat_s=1.0, timeout_s=1.0
    )
    membership.admit()
    has_ended(about)
    try:
        membership.poll()
        membership.poll()
    finally:
        membership.close()


@cache
def _server() -> SampleServer:
    server = SampleServer(open_generator(small_run.base() / "run"), "run", 0)
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def fuzz_server(draws: Random, folder: Path) -> None:
    """Requests to the server of samples: bytes, paths, methods and headers; with and without its secret."""
    server = _server()
    secret = draws.choice((server.secret, server.secret, "", "..", "x" * 24, "%00"))
    path = draws.choice(
        ("", "images?num=1", "images?seed=2&num=2", "../../etc/passwd", "%2e%2e/config.yaml", "?" * 5000, "\\")
    )
    host = draws.choice(("127.0.0.1", "localhost:1", "example.org", ""))
    method = draws.choice(("GET", "GET", "GET", "POST", "HEAD", "GET" * 50))
    request = f"{method} /{secret}/{path} HTTP/1.{draws.randrange(10)}\r\nHost: {host}\r\n\r\n".encode()
    request = mutate_bytes(draws, request) if draws.random() < 0.7 else request
    answer = _answer(server.server_address, request)
    status = answer.split(b"\r\n", 1)[0]
    if server.secret.encode() not in request and b" 200 " in status:
        raise AssertionError("the page is served without its secret")
    if b"Traceback" in answer or b"root:x:0" in answer or b" 500 " in status:
        raise AssertionError(answer[:300].decode(errors="replace"))
    if b" 200 " not in status:
        raise RankError(f"refused: {status[:60]!r}")


def _answer(address: Any, request: bytes) -> bytes:
    answer = b""
    with closing(socket.create_connection(address, _WAIT_S)) as sock, suppress(ConnectionError):
        sock.sendall(request)
        sock.shutdown(socket.SHUT_WR)
        while piece := sock.recv(1 << 16):
            answer += piece
    return answer


TARGETS: dict[str, Callable[[Random, Path], None]] = {
    "control": fuzz_control,
    "heartbeat": fuzz_heartbeat,
    "server": fuzz_server,
}
