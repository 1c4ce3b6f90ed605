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
from paragan.distributed.transports.signed_frames import session_key

_MOST_UNAUTHENTICATED = 64  # clients at a time
_HANDSHAKE_S = 5.0  # in which a client must authenticate
_LOOK_S = 0.5
_LAST_PORT = (1 << 16) - 1
_ATTEMPT_S = 10.0
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Listener:
    """Server that workers connect to. Closing it closes all its connections.

    host: the loopback interface unless given, such as "0.0.0.0" for all interfaces. port 0: any
    free port; see `address`. refused: a message for each of the last 100 clients that did not prove
    that they know the token. Raises `ConfigError` if the address cannot be bound.
    """

    def __init__(self, token: str, host: str = "127.0.0.1", port: int = 0) -> None:
        session_key(token)  # raises for an invalid token
        self._token = token
        self._server = _bind(host, port)
        self.address: tuple[str, int] = self._server.getsockname()[:2]
        self.refused: deque[str] = deque(maxlen=100)
        self._unauthenticated = threading.Semaphore(_MOST_UNAUTHENTICATED)
        self._waiting: queue.Queue[ControlConnection] = queue.Queue()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._lines: set[ControlConnection] = set()
        name = f"listen {self.address[1]}"
        self._thread = threading.Thread(target=self._listen, daemon=True, name=name)
        self._thread.start()

    def accept(self, wait_s: float) -> ControlConnection | None:
        """Return the connection of the next worker; None if none comes within `wait_s`."""
        with suppress(queue.Empty):
            return self._waiting.get(timeout=wait_s)
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
            if not self._unauthenticated.acquire(timeout=_LOOK_S):
                continue
            try:
                sock, address = self._server.accept()
                self._start_connection(ControlConnection(sock, f"{address[0]}:{address[1]}"))
                continue
            except TimeoutError:
                pass
            except (OSError, RuntimeError) as error:  # no more files or threads
                if not self._over.wait(_LOOK_S):
                    host, port = self.address
                    self.refused.append(f"{host}:{port}: cannot accept ({_reason(error)})")
            self._unauthenticated.release()

    def _start_connection(self, line: ControlConnection) -> None:
        with self._lock:
            self._lines.add(line)
        try:
            line.start(lambda: self._serve(line))
        except RuntimeError:
            self._forget(line)
            line.close()
            raise

    def _serve(self, line: ControlConnection) -> None:
        try:
            line.accept_handshake(self._token, time.monotonic() + _HANDSHAKE_S)
        finally:
            self._unauthenticated.release()
        if line.disconnect_reason is None:
            self._waiting.put(line)
        elif not self._over.is_set():
            self.refused.append(line.disconnect_reason)
        line.read()
        self._forget(line)

    def _forget(self, line: ControlConnection) -> None:
        with self._lock:
            self._lines.discard(line)


def connect(token: str, host: str, port: int, timeout_s: float, about: Mapping[str, Any]) -> ControlConnection:
    """Return a connection to a coordinator that listens, or will within `timeout_s`.

    about: the description of this worker (host, pid, cores, …), at most 4 KiB, else `ValueError`.
    Raises `RankError` with the reason if no coordinator accepts.
    """
    session_key(token)
    if not 0 < port <= _LAST_PORT:
        hint = f"use the port that the coordinator prints, 1 to {_LAST_PORT}"
        raise ConfigError(f"{host}:{port}: no process can listen on port {port}; {hint}")
    deadline = time.monotonic() + timeout_s
    pause_s = _PAUSE_S
    while True:
        try:
            return _try_connect(token, host, port, min(deadline, time.monotonic() + _ATTEMPT_S), about)
        except (OSError, UnicodeError) as error:
            why = f"{host}:{port}: {_reason(error)}"
        except RankError as error:
            why = str(error)
        if time.monotonic() + pause_s > deadline:
            hint = "check that it is running there and that the token is that of its run"
            text = f"no coordinator accepted this worker within {timeout_s:g} s ({why})"
            raise RankError(f"{text}; {hint}")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _try_connect(token: str, host: str, port: int, until: float, about: Mapping[str, Any]) -> ControlConnection:
    """Connect and authenticate before the time `until`. Raises `OSError` or `RankError`."""
    sock = socket.create_connection((host, port), max(_PAUSE_S, until - time.monotonic()))
    line = ControlConnection(sock, f"{host}:{port}")
    try:
        line.request_handshake(token, until, about)
        line.start(line.read)
    except BaseException:
        line.close()
        raise
    return line


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
