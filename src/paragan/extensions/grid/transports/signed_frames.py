"""Signed frames of the control plane, and the handshake that opens a session of them.

A frame is the length of its body (4 bytes, big-endian), an HMAC-SHA256 (32 bytes) and the body: a JSON object in UTF-8.
The signature covers the body, its direction and a counter. The coordinator sends a nonce first; the worker answers with
a nonce and its description, signed under the first; all that follows is signed under the run's token and both nonces.
So a frame is valid once, at one position of one connection. The body is authenticated, not encrypted.
"""

import hmac
import json
import math
import secrets
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from paragan.core.errors import ConfigError, RankError

MAX_BYTES = 1 << 20  # largest body, and before authentication
HELLO_BYTES = 4096
DOWN = b"v"  # directions: from the coordinator, from a worker
UP = b"^"
HEAD = struct.Struct(">I32s")
_NONCE_BYTES = 32
_PIECE_BYTES = 1 << 16  # allocation step: a claimed length alone allocates no more


def session_key(token: str, *nonces: bytes) -> bytes:
    """Return the key of a connection. nonces: the coordinator's first, as far as they are known."""
    if len(token) < 32:
        raise ConfigError(f"the token has {len(token)} characters; use the token of the run, 32 characters or more")
    return hmac.digest(token.encode(), b"paragan control 1" + b"".join(nonces), "sha256")


class FrameSigner:
    """Signer or verifier of one direction's frames, in their order. One thread at a time."""

    def __init__(self, key: bytes, direction: bytes, max_bytes: int = MAX_BYTES) -> None:
        self.key = key
        self.direction = direction
        self.max_bytes = max_bytes
        self.count = 0

    def pack(self, values: Mapping[str, Any]) -> bytes:
        """Return the next frame. `ValueError`: invalid or too large, and then not counted."""
        try:
            body = json.dumps(values, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"the values are not a JSON object with finite numbers: {error}") from None
        if len(body) > self.max_bytes:
            raise ValueError(f"the message has {len(body)} bytes; the limit is {self.max_bytes}")
        frame = HEAD.pack(len(body), self._signature(body)) + body
        self.count += 1
        return frame

    def body_size(self, head: bytes) -> int:
        """Return the size of the body, before it is allocated. Raises `RankError` if too large."""
        size = int(HEAD.unpack(head)[0])
        if not 2 <= size <= self.max_bytes:
            raise RankError(f"a frame of {size} bytes is invalid; the range is 2 to {self.max_bytes}")
        return size

    def unpack(self, head: bytes, body: bytes) -> dict[str, Any]:
        """Return the next frame's content; `RankError` if invalid. Unsigned data is not parsed."""
        # before the body is parsed, and in constant time: neither JSON nor timing is open to strangers
        if not hmac.compare_digest(HEAD.unpack(head)[1], self._signature(body)):
            raise RankError("a frame has an invalid signature: another token, a changed frame, or one out of order")
        self.count += 1
        try:
            values = json.loads(body.decode(), parse_constant=_finite, parse_float=_finite)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise RankError("a signed frame is not a JSON object with finite numbers")
        return values

    def _signature(self, body: bytes) -> bytes:
        # with direction and count: a frame cannot be sent back, repeated, left out or moved
        return hmac.digest(self.key, self.direction + self.count.to_bytes(8, "big") + body, "sha256")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def accept_session(sock: socket.socket, token: str, until: float) -> tuple[FrameSigner, FrameSigner, dict[str, Any]]:
    """Authenticate a worker, as the coordinator, before the time `until`.

    Returns the signer of frames to send, that of frames to receive, and the worker's description.
    """
    nonce = secrets.token_bytes(_NONCE_BYTES)
    _send_frame(sock, FrameSigner(session_key(token), DOWN), {"nonce": nonce.hex()}, until)
    # signed with this nonce: a hello that was recorded before is of another one; small until it is known who sends
    hello = receive_frame(sock, FrameSigner(session_key(token, nonce), UP, HELLO_BYTES), until)
    key = session_key(token, nonce, _nonce_of(hello))
    sender = FrameSigner(key, DOWN)
    _send_frame(sock, sender, {}, until)
    description = hello["about"] if isinstance(hello.get("about"), dict) else {}
    return sender, FrameSigner(key, UP), description


def request_session(
    sock: socket.socket, token: str, until: float, about: Mapping[str, Any]
) -> tuple[FrameSigner, FrameSigner]:
    """Authenticate as a worker before the time `until`; return the signers to send and to receive."""
    if sock.getsockname() == sock.getpeername():  # connected to itself
        raise RankError("no process listens there")
    remote_nonce = _nonce_of(receive_frame(sock, FrameSigner(session_key(token), DOWN, HELLO_BYTES), until))
    nonce = secrets.token_bytes(_NONCE_BYTES)
    hello = {"nonce": nonce.hex(), "about": dict(about)}
    _send_frame(sock, FrameSigner(session_key(token, remote_nonce), UP, HELLO_BYTES), hello, until)
    key = session_key(token, remote_nonce, nonce)
    receiver = FrameSigner(key, DOWN)
    receive_frame(sock, receiver, until)  # empty: only who knows the token can sign it
    return FrameSigner(key, UP), receiver


def _send_frame(sock: socket.socket, signer: FrameSigner, values: Mapping[str, Any], until: float) -> None:
    frame = signer.pack(values)
    sock.settimeout(_seconds_left(until))
    sock.sendall(frame)


def receive_frame(sock: socket.socket, signer: FrameSigner, until: float | None = None) -> dict[str, Any]:
    """Return the content of the next frame, verified; without `until`, any silence is allowed before it.

    Raises `RankError` if the frame is invalid, too late or not complete, or the other end has closed.
    """
    head = _receive(sock, HEAD.size, False, until)
    return signer.unpack(head, _receive(sock, signer.body_size(head), True, until))


def _receive(sock: socket.socket, count: int, has_begun: bool, until: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        if until is not None:
            sock.settimeout(_seconds_left(until))
        try:
            piece = sock.recv(min(count - len(data), _PIECE_BYTES))
        except TimeoutError:
            if until is None and not (has_begun or data):  # between frames silence is no failure; heartbeats decide
                continue
            raise RankError("did not send a whole frame in time") from None
        if not piece:
            place = " within a frame" if has_begun or data else ""
            raise RankError(f"the other end closed the connection{place}")
        data += piece
    return bytes(data)


def _seconds_left(until: float) -> float:
    if (left_s := until - time.monotonic()) <= 0:
        raise RankError("did not finish the handshake in time")
    return left_s


def _nonce_of(hello: Mapping[str, Any]) -> bytes:
    with suppress(ValueError, TypeError, KeyError):
        if len(nonce := bytes.fromhex(hello["nonce"])) == _NONCE_BYTES:
            return nonce
    raise RankError("sent no valid nonce")
