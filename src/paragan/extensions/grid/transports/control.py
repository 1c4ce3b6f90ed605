"""Control plane: JSON messages between a coordinator and its workers over persistent connections.

Messages are authenticated but not encrypted: they must not contain secrets. Each connection has a
thread, asleep in `recv`: a grid has tens of workers and at most about a thousand, so that a slow or
hostile peer blocks only its thread.
"""

import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from paragan.core.errors import ConfigError, RankError
from paragan.extensions.grid.transports.signed_frames import accept_session, receive_frame, request_session, session_key

SEND_S = 10.0  # in which some of a message must move
LINGER_S = 1.0  # in which sent messages arrive before a connection closes
_HANDSHAKE_S = 5.0  # in which a client must authenticate
_MAX_UNAUTHENTICATED = 64  # clients at a time
_MAX_QUEUED = 256  # received messages; beyond it the sender blocks
_POLL_S = 0.5  # between two looks at whether the listener was closed
_ATTEMPT_S = 10.0  # of a worker to connect and authenticate
_PAUSE_S = 0.05  # after its first attempt; doubles
_LAST_PORT = (1 << 16) - 1


class ControlConnection:
    """A control connection, from `Listener.accept` or `connect`. Thread-safe.

    peer_address: of the other end. peer_info: a worker's description; empty on the worker's side.
    disconnect_reason: why sending has ended, None while connected; earlier messages can be received.
    """

    def __init__(self, sock: socket.socket, peer_address: str) -> None:
        self.peer_address = peer_address
        self.peer_info: Mapping[str, Any] = {}
        self.disconnect_reason: str | None = None
        self._sock = sock
        self._thread: threading.Thread | None = None
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._queue: deque[dict[str, Any]] = deque()  # received messages
        self._is_shut_down = False  # reading has ended, too
        with suppress(OSError):  # already closed: the first read reports it
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small messages leave at once

    def send(self, kind: str, **values: Any) -> None:
        """Send `{"kind": kind, **values}`; returns when it is under way, before it arrives.

        Raises `RankError` if the connection is broken or nothing moved for `SEND_S`, which breaks
        it; `ValueError` if the values are not JSON, not finite or too large: then nothing was sent.
        """
        if not self._sending.acquire(timeout=SEND_S):
            raise RankError(f"{self.peer_address}: took no message within {SEND_S:g} s")
        try:
            if self.disconnect_reason is None:
                frame = self._signer.pack({"kind": kind, **values})
                with self._ending_on_error():
                    self._sock.sendall(frame)
        finally:
            self._sending.release()
        if self.disconnect_reason is not None:
            raise RankError(self.disconnect_reason)

    def receive(self, wait_s: float) -> Mapping[str, Any] | None:
        """Return the next message in order; None after `wait_s`, at once if none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self.disconnect_reason is not None, wait_s)
            self._changed.notify_all()
            return self._queue.popleft() if self._queue else None

    def close(self) -> None:
        """Close after sent messages have arrived, in bounded time; drop those not received."""
        self.begin_close()
        self.finish_close(time.monotonic() + LINGER_S)

    def begin_close(self) -> None:
        """Begin `close`: send nothing more. Closing at once could discard data in flight."""
        self._end("closed by this end", socket.SHUT_WR)
        self._queue.clear()

    def finish_close(self, deadline: float) -> None:
        """Finish `close`: wait until the other end closes, or until the deadline."""
        if self._thread is None:
            return self._leave()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._end("closed by this end")
            self._thread.join(LINGER_S)

    def accept_handshake(self, token: str, until: float) -> None:
        """Authenticate a client; a failure sets `disconnect_reason`."""
        with self._ending_on_error():
            self._signer, self._verifier, self.peer_info = accept_session(self._sock, token, until)
            self._sock.settimeout(SEND_S)

    def request_handshake(self, token: str, until: float, about: Mapping[str, Any]) -> None:
        """Authenticate as a worker; `RankError` if that fails. about: at most 4 KiB."""
        with self._ending_on_error():
            self._signer, self._verifier = request_session(self._sock, token, until, about)
            self._sock.settimeout(SEND_S)
        if self.disconnect_reason is not None:
            raise RankError(self.disconnect_reason)

    def start(self, run: Callable[[], None]) -> None:
        """Start `run`, which ends in `read`, in a thread; `RuntimeError` if none can start."""
        thread = threading.Thread(target=run, daemon=True, name=f"connection {self.peer_address}")
        thread.start()
        self._thread = thread

    def read(self) -> None:
        """Receive messages until the connection ends; then close its socket."""
        try:
            with self._ending_on_error():
                while not self._is_shut_down:  # after `begin_close`, so that sent messages arrive
                    self._enqueue(receive_frame(self._sock, self._verifier))
        finally:
            self._leave()

    def _enqueue(self, message: dict[str, Any]) -> None:
        if not isinstance(message.get("kind"), str):
            raise RankError("sent a message without a kind")
        with self._changed:
            # a full queue stops the reading, and TCP then stops the sender: memory stays bounded
            self._changed.wait_for(lambda: len(self._queue) < _MAX_QUEUED or self.disconnect_reason is not None)
            if self.disconnect_reason is None:
                self._queue.append(message)
                self._changed.notify_all()

    def _leave(self) -> None:
        self._end("closed by this end")
        with self._sending, self._changed:  # no thread may use the socket: its descriptor can be reused at once
            self._sock.close()

    def _end(self, reason: str, how: int = socket.SHUT_RDWR) -> None:
        """Record the first reason, and wake all threads that wait in the socket or the queue."""
        with self._changed, suppress(OSError):
            self.disconnect_reason = self.disconnect_reason or f"{self.peer_address}: {reason}"
            self._is_shut_down = self._is_shut_down or how == socket.SHUT_RDWR
            self._changed.notify_all()
            self._sock.shutdown(how)

    @contextmanager
    def _ending_on_error(self) -> Iterator[None]:
        """Record an error inside as the reason why this connection ended."""
        try:
            yield
        except RankError as error:
            self._end(str(error))
        except TimeoutError:
            self._end(f"took no message within {SEND_S:g} s")
        except (OSError, MemoryError) as error:
            self._end(f"the connection broke ({_reason(error) or 'out of memory'})")


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
                    self.refused.append(f"{host}:{port}: cannot accept ({_reason(error)})")
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
            reason = str(error) if isinstance(error, RankError) else f"{host}:{port}: {_reason(error)}"
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
        raise ConfigError(f"cannot listen on {host}:{port} ({_reason(error)}); {hint}") from None
    server.settimeout(_POLL_S)
    return server


def _reason(error: BaseException) -> str:
    """Return what an error says, without Python's "(while attempting to bind on address …)"."""
    return str(getattr(error, "strerror", None) or error).partition(" (while")[0]
