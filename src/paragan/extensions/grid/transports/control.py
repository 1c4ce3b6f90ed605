"""Control plane: JSON messages between a coordinator and its workers over persistent connections.

Messages are authenticated but not encrypted: they must not contain secrets. Each connection has a thread, asleep in
`recv`: a grid has tens of workers and at most about a thousand, so that a slow or hostile peer blocks only its thread.
"""

import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from paragan.core.errors import ConfigError, RankError
from paragan.extensions.grid.transports.control_connection import LINGER_S, ControlConnection, reason_of
from paragan.extensions.grid.transports.signed_frames import session_key

_HANDSHAKE_S = 5.0  # in which a client must authenticate
_MAX_UNAUTHENTICATED = 64  # clients at a time
_POLL_S = 0.5  # between two looks at whether the listener was closed
_ATTEMPT_S = 10.0  # of a worker to connect and authenticate
_PAUSE_S = 0.05  # after its first attempt; doubles
_LAST_PORT = (1 << 16) - 1


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
        self._unauthenticated = threading.Semaphore(_MAX_UNAUTHENTICATED)
        self._waiting: queue.Queue[ControlConnection] = queue.Queue()  # for `accept`
        self._over = threading.Event()
        self._connections: set[ControlConnection] = set()
        self._thread = threading.Thread(target=self._listen, daemon=True, name=f"listen {self.address[1]}")
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
        self._thread.join(2 * _POLL_S)
        self._server.close()
        connections = list(self._connections)
        for connection in connections:  # all begin before any is waited for: together they take one `LINGER_S`
            connection.begin_close()
        deadline = time.monotonic() + LINGER_S
        for connection in connections:
            connection.finish_close(deadline)

    def _listen(self) -> None:
        while not self._over.is_set():
            # before `accept`: clients without the token wait in the backlog, and cost no thread
            if not self._unauthenticated.acquire(timeout=_POLL_S):
                continue
            try:
                self._start_connection(*self._server.accept())
                continue
            except TimeoutError:
                pass
            except (OSError, RuntimeError) as error:  # no more files or threads
                if not self._over.wait(_POLL_S):
                    host, port = self.address
                    self.refused.append(f"{host}:{port}: cannot accept ({reason_of(error)})")
            self._unauthenticated.release()

    def _start_connection(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        connection = ControlConnection(sock, f"{address[0]}:{address[1]}")
        self._connections.add(connection)
        try:
            connection.start(lambda: self._serve(connection))
        except RuntimeError:
            self._connections.discard(connection)
            connection.close()
            raise

    def _serve(self, connection: ControlConnection) -> None:
        """Authenticate a client, hand it to `accept`, and read its messages (thread)."""
        try:
            connection.accept_handshake(self._token, time.monotonic() + _HANDSHAKE_S)
        finally:
            self._unauthenticated.release()
        if connection.disconnect_reason is None:
            self._waiting.put(connection)
        elif not self._over.is_set():
            self.refused.append(connection.disconnect_reason)
        connection.read()
        self._connections.discard(connection)


def connect(token: str, host: str, port: int, timeout_s: float, about: Mapping[str, Any]) -> ControlConnection:
    """Return a connection to a coordinator that listens, or will within `timeout_s`.

    about: the description of this worker (host, pid, cores, …), at most 4 KiB, else `ValueError`.
    Raises `RankError` with the reason if no coordinator accepts.
    """
    session_key(token)
    if not 0 < port <= _LAST_PORT:
        raise ConfigError(
            f"{host}:{port}: no process can listen on port {port}; use the port that the coordinator prints, "
            f"1 to {_LAST_PORT}"
        )
    deadline = time.monotonic() + timeout_s
    pause_s = _PAUSE_S
    while True:
        try:
            return _try_connect(token, host, port, min(deadline, time.monotonic() + _ATTEMPT_S), about)
        except (OSError, UnicodeError, RankError) as error:
            reason = str(error) if isinstance(error, RankError) else f"{host}:{port}: {reason_of(error)}"
        if time.monotonic() + pause_s > deadline:
            hint = "check that it is running there and that the token is that of its run"
            raise RankError(f"no coordinator accepted this worker within {timeout_s:g} s ({reason}); {hint}")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 1.0)


def _try_connect(token: str, host: str, port: int, until: float, about: Mapping[str, Any]) -> ControlConnection:
    """Connect and authenticate before the time `until`. Raises `OSError` or `RankError`."""
    sock = socket.create_connection((host, port), max(_PAUSE_S, until - time.monotonic()))
    connection = ControlConnection(sock, f"{host}:{port}")
    try:
        connection.request_handshake(token, until, about)
        connection.start(connection.read)
    except BaseException:
        connection.close()
        raise
    return connection


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; `ConfigError` if the address cannot be bound."""
    try:
        if not 0 <= port <= _LAST_PORT:
            raise OSError("no such port")
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = socket.create_server(address[:2], family=family, backlog=128)
    except (OSError, UnicodeError) as error:
        hint = "end the process that uses it, or choose port 0 for any free port"
        raise ConfigError(f"cannot listen on {host}:{port} ({reason_of(error)}); {hint}") from None
    server.settimeout(_POLL_S)
    return server
