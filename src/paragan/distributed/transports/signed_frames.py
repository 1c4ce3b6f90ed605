"""Frames of the control plane, and the token that signs them.

A frame is the length of its body (4 bytes, big-endian), an HMAC-SHA256 (32 bytes) and the body: a
JSON object in UTF-8. The signature covers the body, its direction and a counter. Its key is derived
from the run's token and a nonce from either end, so that a frame is valid once, at one position of
one connection. The body is authenticated, not encrypted.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import secrets
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paragan.core.errors import ConfigError, RankError
from paragan.core.files import write_bytes

# never on a command line, which every user of a host can read
TOKEN = "PARAGAN_TOKEN"
TOKEN_FILE = "PARAGAN_TOKEN_FILE"
MOST_BYTES = 1 << 20  # largest body, and before authentication
HELLO_BYTES = 4096
DOWN = b"v"  # directions: from the coordinator, from a worker
UP = b"^"
HEAD = struct.Struct(">I32s")
_FEWEST_CHARACTERS = 32
_LABEL = b"paragan control 1"
_CONTENT = "a JSON object with finite numbers"


def new_token() -> str:
    """Return a random token for one run: 64 hexadecimal digits."""
    return secrets.token_hex(32)


def save_token(path: Path, token: str) -> None:
    """Write the token for workers that share this file system, readable by this user only."""
    write_bytes(path, token.encode("ascii"), mode=0o600)


def find_token(environment: Mapping[str, str] | None = None) -> str:
    """Return the token of the run: PARAGAN_TOKEN, or the content of the file PARAGAN_TOKEN_FILE.

    Raises `ConfigError` if both are missing, or others may read the file.
    """
    env = os.environ if environment is None else environment
    if token := env.get(TOKEN):
        return token
    if not env.get(TOKEN_FILE):
        raise ConfigError(f"{TOKEN} or {TOKEN_FILE} is required; set one to the token of the run, or its file")
    path = Path(env[TOKEN_FILE])
    try:
        with path.open(encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            if mode & 0o077:
                problem = f"other users can read this token (its mode is {mode:04o})"
                raise ConfigError(f"{path}: {problem}; resume the run for a new token, and copy that with mode 0600")
            return file.read(HELLO_BYTES).strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not ASCII"
        problem = f"the token cannot be read ({why})"
        raise ConfigError(f"{path}: {problem}; set {TOKEN_FILE} to the token file of the run") from None


def session_key(token: str, *nonces: bytes) -> bytes:
    """Return the key of one connection. nonces: of 32 bytes, the coordinator's first, if known."""
    if len(token) < _FEWEST_CHARACTERS:
        problem = f"the token has {len(token)} characters"
        raise ConfigError(f"{problem}; use the token of the run, {_FEWEST_CHARACTERS} characters or more")
    return hmac.digest(token.encode(), _LABEL + b"".join(nonces), "sha256")


class FrameSigner:
    """Signer or verifier of one direction's frames, in their order. One thread at a time."""

    def __init__(self, key: bytes, direction: bytes, most_bytes: int = MOST_BYTES) -> None:
        self.key = key
        self.direction = direction
        self.most_bytes = most_bytes
        self.count = 0

    def pack(self, values: Mapping[str, Any]) -> bytes:
        """Return the next frame. `ValueError`: invalid or too large, and then not counted."""
        try:
            body = json.dumps(values, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"the values are not {_CONTENT}: {error}") from None
        if len(body) > self.most_bytes:
            limit = f"the limit is {self.most_bytes}"
            raise ValueError(f"the message has {len(body)} bytes; {limit}")
        frame = HEAD.pack(len(body), self._signature(body)) + body
        self.count += 1
        return frame

    def body_size(self, head: bytes) -> int:
        """Return the size of the body, before it is allocated. Raises `RankError` if too large."""
        size, _ = HEAD.unpack(head)
        if not 2 <= size <= self.most_bytes:
            raise RankError(f"a frame of {size} bytes is invalid; the range is 2 to {self.most_bytes}")
        return int(size)

    def unpack(self, head: bytes, body: bytes) -> dict[str, Any]:
        """Return the next frame's content; `RankError` if invalid. Unsigned data is not parsed."""
        if not hmac.compare_digest(HEAD.unpack(head)[1], self._signature(body)):
            cause = "another token, a changed frame, or one out of order"
            raise RankError(f"a frame has an invalid signature: {cause}")
        self.count += 1
        try:
            values = json.loads(body.decode("utf-8"), parse_constant=_number, parse_float=_number)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise RankError(f"a signed frame is not {_CONTENT}")
        return values

    def _signature(self, body: bytes) -> bytes:
        content = self.direction + self.count.to_bytes(8, "big") + body
        return hmac.digest(self.key, content, "sha256")


def _number(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value
