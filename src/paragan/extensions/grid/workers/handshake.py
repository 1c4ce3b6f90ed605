"""Handshake of a grid's worker and coordinator: worker description and compatibility."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

import paragan
from paragan.core.errors import ParaganError
from paragan.core.local_processes import is_running
from paragan.core.process_environment import num_cores

_PIDS = 1 << 31
_MAX_CODE = 255  # of a process


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


def incompatibility(theirs: Mapping[str, Any], config: str) -> str:
    """Return why this worker cannot take part, empty if it can. config: the coordinator's."""
    if theirs.get("code") != code_digest():
        return (
            f"its paragan code {theirs.get('code')} differs from the coordinator's "
            f"{code_digest()}; install the same version on both hosts"
        )
    if theirs.get("torch") != torch.__version__:
        found = f"its torch {theirs.get('torch')} differs from the coordinator's {torch.__version__}"
        return f"{found}; install the same version on both hosts"
    if theirs.get("config") not in (None, _digest(config)):
        return "its config differs from the coordinator's; use the same command and files on all hosts"
    return ""


def has_ended(theirs: Mapping[str, Any]) -> bool:
    """Return whether the worker's process has ended; False for a process of another host."""
    is_here = theirs.get("host") == socket.gethostname() and theirs.get("pid_namespace") == _pid_namespace() != ""
    pid = theirs.get("pid")
    return is_here and isinstance(pid, int) and 0 < pid < _PIDS and not is_running(pid)


def reported_error(name: str, message: Mapping[str, Any]) -> ParaganError:
    """Return the error that a worker has reported; its message may lack anything."""
    error = ParaganError(f"{name}: {message.get('reason', 'it gave no reason')}")
    code = message.get("code")
    error.exit_code = code if isinstance(code, int) and 0 < code <= _MAX_CODE else 1
    return error


@cache
def code_digest() -> str:
    """Return the digest of all installed source files of paragan."""
    root = Path(paragan.__file__).parent
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _pid_namespace() -> str:
    """Return the namespace of process ids (containers may share a host name), if any."""
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _digest(text: str) -> str:
    """Return twelve hexadecimal digits of the text's sha256."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
