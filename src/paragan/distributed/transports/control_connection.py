"""One end of a connection of the control plane, and the handshake that opens it.

The coordinator sends a nonce first. The worker answers with a nonce and its description, signed
under the first; all that follows is signed under both. So no recorded message can be replayed.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from paragan.core.errors import RankError
from paragan.distributed.transports.signed_frames import DOWN, HEAD, HELLO_BYTES, UP, FrameSigner, session_key

LINGER_S = 1.0
SEND_S = 10.0  # in which some of a message must move
_PIECE_BYTES = 1 << 16  # allocation step: a claimed length alone allocates no more
_NONCE_BYTES = 32
_ROOM = 256  # received messages in the queue; beyond it the sender blocks


class ControlConnection:
    """A control connection, from `Listener.accept` or `connect`. Thread-safe.

    peer_address: of the other end. peer_info: a worker's description; empty on the worker's side.
    disconnect_reason: why sending has ended, None while connected; earlier messages can be received.
    """

    def __init__(self, sock: socket.socket, peer_address: str) -> None:
        self.peer_address = peer_address
        self.peer_info: Mapping[str, Any] = {}
        self._sock = sock
        self._thread: threading.Thread | None = None
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._queue: deque[dict[str, Any]] = deque()
        self.disconnect_reason: str | None = None
        self._is_shut_down = False  # reading has ended, too
        with suppress(OSError):  # already closed: the first read reports it
            # send small messages without delay
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, kind: str, **values: Any) -> None:
        """Send `{"kind": kind, **values}`; returns when it is under way, before it arrives.

        Raises `RankError` if the connection is broken or nothing moved for `SEND_S`, which breaks
        it; `ValueError` if the values are not JSON, not finite or too large: then nothing was sent,
        and the connection is unchanged.
        """
        if not self._sending.acquire(timeout=SEND_S):
            raise RankError(f"{self.peer_address}: took no message within {SEND_S:g} s")
        try:
            if self.disconnect_reason is None:
                frame = self._out.pack({"kind": kind, **values})
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
            own = secrets.token_bytes(_NONCE_BYTES)
            signer = FrameSigner(session_key(token), DOWN, HELLO_BYTES)
            self._send_all(signer.pack({"nonce": own.hex()}), until)
            hello = self._frame(FrameSigner(session_key(token, own), UP, HELLO_BYTES), until)
            self.peer_info = hello["about"] if isinstance(hello.get("about"), dict) else {}
            key = session_key(token, own, _nonce(hello))
            self._out = FrameSigner(key, DOWN)
            self._into = FrameSigner(key, UP)
            self._send_all(self._out.pack({}), until)
            self._sock.settimeout(SEND_S)

    def request_handshake(self, token: str, until: float, about: Mapping[str, Any]) -> None:
        """Authenticate as a worker; `RankError` if that fails. about: at most 4 KiB."""
        with self._ending_on_error():
            if self._sock.getsockname() == self._sock.getpeername():  # connected to itself
                raise RankError("no process listens there")
            other = _nonce(self._frame(FrameSigner(session_key(token), DOWN, HELLO_BYTES), until))
            own = secrets.token_bytes(_NONCE_BYTES)
            hello = {"nonce": own.hex(), "about": dict(about)}
            signer = FrameSigner(session_key(token, other), UP, HELLO_BYTES)
            self._send_all(signer.pack(hello), until)
            key = session_key(token, other, own)
            self._out = FrameSigner(key, UP)
            self._into = FrameSigner(key, DOWN)
            self._frame(self._into, until)  # empty: only who knows the token can sign it
            self._sock.settimeout(SEND_S)
        if self.disconnect_reason is not None:
            raise RankError(self.disconnect_reason)

    def start(self, run: Callable[[], None]) -> None:
        """Start `run`, which ends in `read`, in a thread; `RuntimeError` if none can start."""
        thread = threading.Thread(target=run, daemon=True, name=f"line {self.peer_address}")
        thread.start()
        self._thread = thread

    def read(self) -> None:
        """Receive messages until the connection ends; then close its socket."""
        try:
            with self._ending_on_error():
                while not self._is_shut_down:  # after `begin_close`, so that sent messages arrive
                    self._enqueue(self._frame(self._into))
        finally:
            self._leave()

    def _enqueue(self, message: dict[str, Any]) -> None:
        if not isinstance(message.get("kind"), str):
            raise RankError("sent a message without a kind")
        with self._changed:
            self._changed.wait_for(lambda: len(self._queue) < _ROOM or self.disconnect_reason is not None)
            if self.disconnect_reason is None:
                self._queue.append(message)
                self._changed.notify_all()

    def _leave(self) -> None:
        self._end("closed by this end")
        # no thread may use the socket: a closed descriptor can be reused at once
        with self._sending, self._changed:
            self._sock.close()

    def _end(self, why: str, how: int = socket.SHUT_RDWR) -> None:
        """Record the first reason, and wake all threads that wait in the socket or the queue."""
        with self._changed, suppress(OSError):
            self.disconnect_reason = self.disconnect_reason or f"{self.peer_address}: {why}"
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
            why = getattr(error, "strerror", None) or "out of memory"
            self._end(f"the connection broke ({why})")

    def _send_all(self, data: bytes, until: float) -> None:
        self._sock.settimeout(_seconds_left(until))
        self._sock.sendall(data)

    def _frame(self, signer: FrameSigner, until: float | None = None) -> dict[str, Any]:
        """Return the next frame, verified; without `until`, any silence is allowed before it."""
        head = self._take(HEAD.size, False, until)
        return signer.unpack(head, self._take(signer.body_size(head), True, until))

    def _take(self, count: int, begun: bool, until: float | None) -> bytes:
        data = bytearray()
        while len(data) < count:
            if until is not None:
                self._sock.settimeout(_seconds_left(until))
            try:
                piece = self._sock.recv(min(count - len(data), _PIECE_BYTES))
            except TimeoutError:
                if until is None and not (begun or data):
                    continue
                raise RankError("did not send a whole frame in time") from None
            if not piece:
                place = " within a frame" if begun or data else ""
                raise RankError(f"the other end closed the connection{place}")
            data += piece
        return bytes(data)


def _seconds_left(until: float) -> float:
    if (left_s := until - time.monotonic()) <= 0:
        raise RankError("did not finish the handshake in time")
    return left_s


def _nonce(hello: Mapping[str, Any]) -> bytes:
    with suppress(ValueError, TypeError, KeyError):
        if len(nonce := bytes.fromhex(hello["nonce"])) == _NONCE_BYTES:
            return nonce
    raise RankError("sent no valid nonce")
