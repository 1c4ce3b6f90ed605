"""Handshake of a grid's worker and coordinator: token and address of the run, description of the worker.

The token is the secret by which they recognise each other. It is never on a command line, which
every user of a host can read.
"""

import hashlib
import json
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import paragan
from paragan.core.errors import ConfigError, ParaganError, RankError
from paragan.core.files import write_bytes
from paragan.core.local_processes import is_running
from paragan.core.process_environment import num_cores

TOKEN = "PARAGAN_TOKEN"
TOKEN_FILE = "PARAGAN_TOKEN_FILE"
_MAX_CHARACTERS = 4096  # of a token file
_MAX_PID = (1 << 31) - 1
_MAX_CODE = 255  # of a process


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
        reason = getattr(error, "strerror", None) or "not ASCII"
        raise ConfigError(
            f"{path}: the token cannot be read ({reason}); set {TOKEN_FILE} to the token file of the run"
        ) from None


@dataclass(kw_only=True)
class ExternalWorkers:
    """Processes of one grid that another program started, such as torchrun or mpiexec.

    Rank 0 is the coordinator and broadcasts its address once, as JSON.

    broadcast_text: sends to all others, from rank 0. receive_text: returns what rank 0 sent; raises
    on a time-out. mpi: whether mpiexec started them. has_broadcast: whether rank 0 has sent.
    """

    rank: int
    size: int
    broadcast_text: Callable[[str], None]
    receive_text: Callable[[], str]
    mpi: bool = False
    has_broadcast: bool = False

    def broadcast(self, values: Mapping[str, Any]) -> None:
        """Send the address and token of the coordinator to all workers."""
        self.has_broadcast = True
        self.broadcast_text(json.dumps(values))

    def receive(self) -> dict[str, Any]:
        """Return the values that rank 0 sent: strings and numbers."""
        values = json.loads(self.receive_text())
        if not isinstance(values, dict):
            raise RankError(f"rank {self.rank}: rank 0 sent no address of its coordinator")
        return values


def worker_info(device: str, config: str | None = None, place: int | None = None) -> dict[str, Any]:
    """Return the description of this worker that its coordinator receives.

    device: that it trains on. config: the resolved config, if the worker has read one. place: its rank under mpiexec.
    """
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pid_namespace": _pid_namespace(),
        "cores": num_cores(),
        "device": device,
        "place": place,
        "code": code_digest(),
        "torch": torch.__version__,
        "config": None if config is None else _digest(config),
    }


def incompatibility(worker: Mapping[str, Any], config: str) -> str:
    """Return why a worker cannot take part, empty if it can. worker: its `worker_info`. config: the coordinator's."""
    if worker.get("code") != code_digest():
        return (
            f"its paragan code {worker.get('code')} differs from the coordinator's "
            f"{code_digest()}; install the same version on both hosts"
        )
    if worker.get("torch") != torch.__version__:
        return (
            f"its torch {worker.get('torch')} differs from the coordinator's {torch.__version__}; "
            "install the same version on both hosts"
        )
    if worker.get("config") not in (None, _digest(config)):  # None: it read none, and gets the coordinator's
        return "its config differs from the coordinator's; use the same command and files on all hosts"
    return ""


def has_ended(worker: Mapping[str, Any]) -> bool:
    """Return whether a worker's process has ended; False for a process of another host. worker: its `worker_info`."""
    pid = local_pid(worker)
    return pid is not None and not is_running(pid)


def local_pid(worker: Mapping[str, object]) -> int | None:
    """Return the pid of a worker's process; None for a process of another host. worker: its `worker_info`."""
    namespace = _pid_namespace()
    is_same_host = worker.get("host") == socket.gethostname() and bool(namespace)
    pid = worker.get("pid")
    # a pid means a process only in its namespace: containers may share a host's name, and have the same numbers
    if not is_same_host or worker.get("pid_namespace") != namespace or not isinstance(pid, int):
        return None
    return pid if 0 < pid <= _MAX_PID else None


def reported_error(name: str, message: Mapping[str, Any]) -> ParaganError:
    """Return the error that a worker has reported; any field of its message may be missing, or of another type."""
    error = ParaganError(f"{name}: {message.get('reason', 'it gave no reason')}")
    code = message.get("code")
    error.exit_code = code if isinstance(code, int) and 0 < code <= _MAX_CODE else 1
    return error


@cache
def code_digest() -> str:
    """Return the digest of all installed source files of paragan: a version number may be that of changed code."""
    root = Path(paragan.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _pid_namespace() -> str:
    """Return the namespace of process ids (containers may share a host name), if any."""
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _digest(text: str) -> str:
    """Return twelve hexadecimal digits of the text's sha256."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
