"""Token of a run: the secret by which a coordinator and its workers recognise each other.

It is never on a command line, which every user of a host can read.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from paragan.core.errors import ConfigError
from paragan.core.files import write_bytes

TOKEN = "PARAGAN_TOKEN"
TOKEN_FILE = "PARAGAN_TOKEN_FILE"
_MAX_CHARACTERS = 4096


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
            return file.read(_MAX_CHARACTERS).strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not ASCII"
        raise ConfigError(
            f"{path}: the token cannot be read ({why}); set {TOKEN_FILE} to the token file of the run"
        ) from None
