"""Checks of the machine: disk, shared memory, limit of open files.

A check is a function that returns a `CheckResult`; its inputs are parameters, so that tests can
cause every result. This file must not import torch.
"""

import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Level = Literal["ok", "warn", "FAIL"]
_GB = 1e9


@dataclass(frozen=True)
class CheckResult:
    """Result of one check. fix: one sentence; empty if the check passed."""

    name: str
    level: Level
    message: str
    fix: str = ""


def free_bytes(path: str) -> int:
    """Return the free space of the file system of `path`."""
    return shutil.disk_usage(path).free


def disk(place: str = ".", free: Callable[[str], int] = free_bytes) -> CheckResult:
    """Check the space for a run folder: fails below 0.2 GB, warns below 2 GB."""
    gb = free(place) / _GB
    if gb >= 2:
        return CheckResult("disk here", "ok", f"{gb:.1f} GB free")
    cure = "checkpoints need space: free some, or use another disk with train --out DIR"
    return CheckResult("disk here", "FAIL" if gb < 0.2 else "warn", f"{gb:.1f} GB free", cure)


def shared_memory(place: str = "/dev/shm", free: Callable[[str], int] = free_bytes) -> CheckResult:
    """Check the shared memory between processes: warns at 64 MB, the default of a container."""
    if not os.path.isdir(place):
        return CheckResult("shared memory", "ok", f"this system has no {place}")
    gb = free(place) / _GB
    cure = "" if gb >= 0.1 else "several processes may run out of it: start the container with --shm-size=1g"
    level: Level = "warn" if cure else "ok"
    return CheckResult("shared memory", level, f"{gb:.2f} GB free in {place}", cure)


def writable(place: str = ".") -> CheckResult:
    """Check that the working directory, the parent of `runs/`, is writable."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x")
    except OSError as error:
        cure = "change to a writable folder, or use one with train --out DIR"
        return CheckResult("this folder", "FAIL", f"cannot be written: {error.strerror}", cure)
    return CheckResult("this folder", "ok", f"can be written: {Path(place).resolve()}")


def open_files(limit: int | None = None) -> CheckResult:
    """Check the limit on open files and sockets."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    text = "no limit" if limit == resource.RLIM_INFINITY else f"at most {limit}"
    is_low = limit != resource.RLIM_INFINITY and limit < 1024
    cure = "large data sets and many processes need more: ulimit -n 4096" if is_low else ""
    return CheckResult("open files", "warn" if is_low else "ok", text, cure)
