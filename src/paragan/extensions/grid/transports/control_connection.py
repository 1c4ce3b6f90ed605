"""One control connection of a coordinator and a worker: JSON messages, authenticated but not encrypted."""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from paragan.core.errors import RankError
from paragan.extensions.grid.transports.signed_frames import accept_session, receive_frame, request_session

SEND_S = 10.0  # in which some of a message must move
LINGER_S = 1.0  # in which sent messages arrive before a connection closes
_MAX_QUEUED = 256  # received messages; beyond it the sender blocks


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
            self._end(f"the connection broke ({reason_of(error) or 'out of memory'})")


def reason_of(error: BaseException) -> str:
    """Return what an error says, without Python's "(while attempting to bind on address …)"."""
    return str(getattr(error, "strerror", None) or error).partition(" (while")[0]
