"""Control plane: JSON messages between a coordinator and its workers over persistent connections.

Each connection has a thread, asleep in `recv`: a grid has tens of workers and at most about a
thousand, so that a slow or hostile peer blocks only its thread. Bodies are authenticated but not
encrypted: a message must not contain secrets.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from paragan.core.errors import ConfigError, RankError
from paragan.distributed.transports.control_connection import LINGER_S, ControlConnection
from paragan.distributed.transports.signed_frames import MOST_BYTES, session_key

_STRANGERS = 64  # unauthenticated clients at a time
_LOOK_S = 0.5
_LAST_PORT = (1 << 16) - 1
_ATTEMPT_S = 10.0
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Listener:
    """Server that workers connect to. Closing it closes all its connections.

    host: the loopback interface unless given, such as "0.0.0.0" for all interfaces. port 0: any
    free port; see `address`. most: connections at once. hello_s: time in which a client must prove
    that it knows the token. refused: a message for each of the last 100 clients that did not.
    Raises `ConfigError` if the address cannot be bound.
    """

    def __init__(
        self, token: str, host: str = "127.0.0.1", port: int = 0, *, most: int = 1024, send_s: float = 10.0,
        hello_s: float = 5.0, most_bytes: int = MOST_BYTES,
    ) -> None:  # fmt: skip
        session_key(token)  # raises for an invalid token
        self._token = token
        self._most = most
        self._most_bytes = most_bytes
        self._send_s = send_s
        self._hello_s = hello_s
        self._server = _bind(host, port)
        self.address: tuple[str, int] = self._server.getsockname()[:2]
        self.refused: deque[str] = deque(maxlen=100)
        self._strangers = threading.Semaphore(_STRANGERS)
        self._waiting: queue.Queue[ControlConnection] = queue.Queue()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._lines: dict[ControlConnection, bool] = {}  # whether the client knows the token
        name = f"listen {self.address[1]}"
        self._thread = threading.Thread(target=self._listen, daemon=True, name=name)
        self._thread.start()

    def accept(self, wait_s: float) -> ControlConnection | None:
        """Return the connection of the next worker; None if none comes within `wait_s`."""
        with suppress(queue.Empty):
            return self._waiting.get(timeout=wait_s) if wait_s > 0 else self._waiting.get_nowait()
        return None

    def close(self) -> None:
        """Close the server and its connections, in bounded time; may be called again."""
        self._over.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes `accept` on Linux
        self._thread.join(2 * _LOOK_S)
        self._server.close()
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            line.begin_close()
        deadline = time.monotonic() + LINGER_S
        for line in lines:
            line.finish_close(deadline)

    def _listen(self) -> None:
        while not self._over.is_set():
            if not self._strangers.acquire(timeout=_LOOK_S):
                continue
            try:
                sock, address = self._server.accept()
                peer = f"{address[0]}:{address[1]}"
                self._start_connection(ControlConnection(sock, peer, self._send_s))
                continue
            except TimeoutError:
                pass
            except (OSError, RuntimeError) as error:  # no more files or threads
                if not self._over.wait(_LOOK_S):
                    host, port = self.address[:2]
                    self.refused.append(f"{host}:{port}: cannot accept ({_reason(error)})")
            self._strangers.release()

    def _start_connection(self, line: ControlConnection) -> None:
        with self._lock:
            self._lines[line] = False
        try:
            line.start(lambda: self._serve(line))
        except RuntimeError:
            self._forget(line)
            line.close()
            raise

    def _serve(self, line: ControlConnection) -> None:
        try:
            until = time.monotonic() + self._hello_s
            line.accept_handshake(self._token, until, self._most_bytes, self._admit)
        finally:
            self._strangers.release()
        if line.disconnect_reason is None:
            self._waiting.put(line)
        elif not self._over.is_set():
            self.refused.append(line.disconnect_reason)
        line.read()
        self._forget(line)

    def _admit(self, line: ControlConnection) -> bool:
        with self._lock:
            has_room = sum(self._lines.values()) < self._most
            self._lines[line] = has_room
            return has_room

    def _forget(self, line: ControlConnection) -> None:
        with self._lock:
            self._lines.pop(line, None)


def connect(
    token: str, host: str, port: int, timeout_s: float, about: Mapping[str, Any], *, send_s: float = 10.0,
    most_bytes: int = MOST_BYTES,
) -> ControlConnection:  # fmt: skip
    """Return a connection to a coordinator that listens, or will within `timeout_s`.

    about: the description of this worker (host, pid, cores, …), at most 4 KiB, else `ValueError`.
    Raises `RankError` with the reason if no coordinator accepts.
    """
    session_key(token)
    if not 0 < port <= _LAST_PORT:
        expected = f"1 to {_LAST_PORT}, as the coordinator has it"
        raise ConfigError(f"{host}:{port}: found port {port}, expected {expected}")
    deadline = time.monotonic() + timeout_s
    pause_s = _PAUSE_S
    while True:
        until = min(deadline, time.monotonic() + _ATTEMPT_S)
        try:
            sock = socket.create_connection((host, port), max(_PAUSE_S, until - time.monotonic()))
        except (OSError, UnicodeError) as error:
            why = f"{host}:{port}: {_reason(error)}"
        else:
            line = ControlConnection(sock, f"{host}:{port}", send_s)
            try:
                line.request_handshake(token, until, most_bytes, about)
                if line.disconnect_reason is None:
                    line.start(line.read)
                    return line
            except BaseException:
                line.close()
                raise
            line.close()
            why = str(line.disconnect_reason)
        if time.monotonic() + pause_s > deadline:
            tail = "check that it is running there and that the token is that of its run"
            text = f"no coordinator accepted this worker within {timeout_s:g} s ({why})"
            raise RankError(f"{text}; {tail}")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _bind(host: str, port: int) -> socket.socket:
    try:
        if not 0 <= port <= _LAST_PORT:
            raise OSError("no such port")
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = socket.create_server(address[:2], family=family, backlog=128)
    except (OSError, UnicodeError) as error:
        reason = f"cannot listen on {host}:{port} ({_reason(error)})"
        hint = "end the process that uses it, or choose port 0 for any free port"
        raise ConfigError(f"{reason}; {hint}") from None
    server.settimeout(_LOOK_S)
    return server


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).partition(" (while")[0]
