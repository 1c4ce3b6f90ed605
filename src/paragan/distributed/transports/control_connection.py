"""One end of a connection of the control plane, and the handshake that opens it.

The coordinator speaks first: a nonce. The worker answers with a nonce of its own and what it
offers, signed under the first; the welcome, and all that follows, is signed under both. So what was
recorded fits no other connection.
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
_PIECE_BYTES = 1 << 16  # a length alone takes no more memory than this
_NONCE_BYTES = 32
_ROOM = 256  # messages that wait to be received; then the other end waits


class ControlConnection:
    """A control connection, from `Listener.accept` or `connect`. Thread-safe.

    peer_address: of the other end. peer_info: what the worker there reported; empty on the worker's
    side.
    """

    def __init__(self, sock: socket.socket, who: str, send_s: float) -> None:
        self.peer_address, self.send_s = who, send_s
        self.peer_info: Mapping[str, Any] = {}
        self._sock = sock
        self._thread: threading.Thread | None = None
        self._sending, self._changed = threading.Lock(), threading.Condition()
        self._queue: deque[dict[str, Any]] = deque()
        self._disconnect_reason: str | None = None
        self._is_shut_down = False  # nothing more is read either
        with suppress(OSError):  # closed already, as the first read will show
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else small messages wait for one another

    @property
    def disconnect_reason(self) -> str | None:
        """Why nothing can be sent any more; None while connected. Earlier messages can still be received."""
        return self._disconnect_reason

    def send(self, kind: str, **values: Any) -> None:
        """`{"kind": kind, **values}`; returns when it is under way, which is not when it has arrived.

        Raises `RankError` where the line is lost, or nothing moved for `send_s`, by which it is;
        `ValueError` where the values are no JSON, not finite, over 16 deep or too large: then
        nothing was sent, and the line is as before.
        """
        if not self._sending.acquire(timeout=self.send_s):
            raise RankError(f"{self.peer_address}: took no message within {self.send_s:g} s")
        try:
            if self._disconnect_reason is None:
                frame = self._out.pack({"kind": kind, **values})
                with self._ending_on_error():
                    self._sock.sendall(frame)
        finally:
            self._sending.release()
        if self._disconnect_reason is not None:
            raise RankError(self._disconnect_reason)

    def receive(self, wait_s: float) -> Mapping[str, Any] | None:
        """The next message, in the order of sending; None after `wait_s`, or at once where none will come (`lost`)."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._disconnect_reason is not None, wait_s)
            self._changed.notify_all()
            return self._queue.popleft() if self._queue else None

    def close(self) -> None:
        """What was sent arrives, if the other end reads; what was not received is dropped. Bounded; again is fine."""
        self.begin_close()
        self.finish_close(time.monotonic() + LINGER_S)

    def begin_close(self) -> None:
        """The first half of `close`: no more from here. To go at once could take back what is still on its way."""
        self._end("closed by this end", socket.SHUT_WR)
        self._queue.clear()

    def finish_close(self, deadline: float) -> None:
        """The second half: the other end goes, too, or is not waited for any longer."""
        if self._thread is None:
            return self._leave()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._end("closed by this end")
            self._thread.join(LINGER_S)

    def accept_handshake(
        self, token: str, until: float, most_bytes: int, admit: Callable[[ControlConnection], bool]
    ) -> None:
        """Authenticate a client; a failure sets `disconnect_reason`. admit: whether there is room for it."""
        with self._ending_on_error():
            own = secrets.token_bytes(_NONCE_BYTES)
            self._send_all(FrameSigner(session_key(token), DOWN, HELLO_BYTES).pack({"nonce": own.hex()}), until)
            hello = self._frame(FrameSigner(session_key(token, own), UP, HELLO_BYTES), until)
            self.peer_info = hello["about"] if isinstance(hello.get("about"), dict) else {}
            key = session_key(token, own, _nonce(hello))
            self._out, self._into = FrameSigner(key, DOWN, most_bytes), FrameSigner(key, UP, most_bytes)
            has_room = admit(self)
            self._send_all(self._out.pack({"full": not has_room}), until)
            if not has_room:
                raise RankError("there are as many workers as there is room for")
            self._sock.settimeout(self.send_s)

    def request_handshake(self, token: str, until: float, most_bytes: int, about: Mapping[str, Any]) -> None:
        """Authenticate as a worker; a refusal sets `disconnect_reason`. `ValueError`: `about` exceeds a hello."""
        with self._ending_on_error():
            if self._sock.getsockname() == self._sock.getpeername():  # a free port of this host, and chance
                raise RankError("no process listens there")
            other = _nonce(self._frame(FrameSigner(session_key(token), DOWN, HELLO_BYTES), until))
            own = secrets.token_bytes(_NONCE_BYTES)
            hello = {"nonce": own.hex(), "about": dict(about)}
            self._send_all(FrameSigner(session_key(token, other), UP, HELLO_BYTES).pack(hello), until)
            key = session_key(token, other, own)
            self._out, self._into = FrameSigner(key, UP, most_bytes), FrameSigner(key, DOWN, most_bytes)
            if self._frame(self._into, until).get("full"):
                raise RankError("there are as many workers as there is room for")
            self._sock.settimeout(self.send_s)

    def start(self, run: Callable[[], None]) -> None:
        """In the thread of this line, which reads it in the end; `RuntimeError` where there can be no more threads."""
        self._thread = threading.Thread(target=run, daemon=True, name=f"line {self.peer_address}")
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            raise

    def read(self) -> None:
        """Until the line is lost; then its socket is closed."""
        try:
            with self._ending_on_error():
                while not self._is_shut_down:  # a line that is closed here reads on, so that what it sent arrives
                    self._enqueue(self._frame(self._into))
        finally:
            self._leave()

    def _enqueue(self, message: dict[str, Any]) -> None:
        if not isinstance(message.get("kind"), str):
            raise RankError("found a message without a kind")
        with self._changed:
            self._changed.wait_for(lambda: len(self._queue) < _ROOM or self._disconnect_reason is not None)
            if self._disconnect_reason is None:
                self._queue.append(message)
                self._changed.notify_all()

    def _leave(self) -> None:
        self._end("closed by this end")
        with self._sending, self._changed:  # no thread uses it: the descriptor of a closed socket can be reused at once
            self._sock.close()

    def _end(self, why: str, how: int = socket.SHUT_RDWR) -> None:
        """Record the first reason, and wake up all threads that wait in the socket, for a message or for room."""
        with self._changed, suppress(OSError):
            self._disconnect_reason = self._disconnect_reason or f"{self.peer_address}: {why}"
            self._is_shut_down = self._is_shut_down or how == socket.SHUT_RDWR
            self._changed.notify_all()
            self._sock.shutdown(how)

    @contextmanager
    def _ending_on_error(self) -> Iterator[None]:
        """What the other end did, or did not, becomes the reason why this line is lost."""
        try:
            yield
        except RankError as error:
            self._end(str(error))
        except TimeoutError:
            self._end(f"took no message within {self.send_s:g} s")
        except (OSError, MemoryError) as error:
            self._end(f"the connection broke ({getattr(error, 'strerror', None) or 'out of memory'})")

    def _send_all(self, data: bytes, until: float) -> None:
        self._sock.settimeout(_seconds_left(until))
        self._sock.sendall(data)

    def _frame(self, seal: FrameSigner, until: float | None = None) -> dict[str, Any]:
        """The next one, signed so. Without `until` any silence is fine before it, and less than `send_s` within it."""
        head = self._take(HEAD.size, False, until)
        return seal.unpack(head, self._take(seal.body_size(head), True, until))

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
                raise RankError("sent no whole frame in time") from None
            if not piece:
                raise RankError(f"the other end closed the connection{' within a frame' if begun or data else ''}")
            data += piece
        return bytes(data)


def _seconds_left(until: float) -> float:
    if (left_s := until - time.monotonic()) <= 0:
        raise RankError("sent no whole hello in time")
    return left_s


def _nonce(hello: Mapping[str, Any]) -> bytes:
    with suppress(ValueError, TypeError, KeyError):
        if len(nonce := bytes.fromhex(hello["nonce"])) == _NONCE_BYTES:
            return nonce
    raise RankError("found a hello without a nonce")
