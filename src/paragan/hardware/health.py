"""Checks of the machine: disk, clock, text encoding, limits, the loopback interface.

A check is a function that returns a `CheckResult`; its inputs are parameters, so that tests can
cause every result. This file must not import torch.
"""

from __future__ import annotations

import locale
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import paragan

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
    level: Level = "FAIL" if gb < 0.2 else "warn" if gb < 2 else "ok"
    cure = "" if level == "ok" else "checkpoints need room: free some disk space or give train another --out DIR"
    return CheckResult("disk here", level, f"{gb:.1f} GB free", cure)


def temporary_disk(place: str | None = None, free: Callable[[str], int] = free_bytes) -> CheckResult:
    """Check the space for temporary files: warns below 0.5 GB."""
    place = place or tempfile.gettempdir()
    gb = free(place) / _GB
    cure = "" if gb >= 0.5 else "free some space there or set TMPDIR to a larger disk"
    level: Level = "warn" if cure else "ok"
    return CheckResult("disk temporary", level, f"{gb:.1f} GB free in {place}", cure)


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
        cure = "change to a folder of yours or give train --out DIR"
        return CheckResult("this folder", "FAIL", f"cannot be written: {error.strerror}", cure)
    return CheckResult("this folder", "ok", f"can be written: {Path(place).resolve()}")


def clock(now: Callable[[], float] = time.time, installed: float | None = None) -> CheckResult:
    """Check that the clock is not before the installation of paragan. installed: POSIX seconds."""
    installed = os.path.getmtime(paragan.__file__) if installed is None else installed
    days = (installed - now()) / 86400
    utc = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now()))
    if days > 1:
        found = f"{utc}, {days:.0f} days before paragan was installed"
        cure = "set the clock: records and file times depend on it"
        return CheckResult("clock", "warn", found, cure)
    return CheckResult("clock", "ok", utc)


def monotonic(tick: Callable[[], float] = time.monotonic, wait_s: float = 0.02) -> CheckResult:
    """Check that the monotonic clock, which measures time-outs and speeds, advances."""
    before = tick()
    time.sleep(wait_s)
    seconds = tick() - before
    found = f"{seconds * 1000:.0f} ms passed while waiting {wait_s * 1000:.0f} ms"
    if wait_s / 2 <= seconds <= wait_s + 5:
        return CheckResult("monotonic clock", "ok", found)
    cure = "time-outs and speeds cannot be trusted: the machine is paused or overloaded, look at its load or its host"
    return CheckResult("monotonic clock", "warn", found, cure)


def encoding(names: tuple[str, ...] | None = None) -> CheckResult:
    """Check that files, file names and the output are encoded as UTF-8."""
    names = names or (locale.getencoding(), sys.getfilesystemencoding(), sys.stdout.encoding or "none")
    invalid = [name for name in names if name.lower().replace("-", "") not in ("utf8", "utf8sig")]
    cure = "class names with accents may not be shown or read: set PYTHONUTF8=1" if invalid else ""
    found = ", ".join(dict.fromkeys(invalid or names))
    return CheckResult("text", "warn" if invalid else "ok", found, cure)


def open_files(limit: int | None = None) -> CheckResult:
    """Check the limit on open files and sockets."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    found = "no limit" if limit == resource.RLIM_INFINITY else f"at most {limit}"
    few = limit != resource.RLIM_INFINITY and limit < 1024
    cure = "large data sets and many processes need more: ulimit -n 4096" if few else ""
    return CheckResult("open files", "warn" if few else "ok", found, cure)


def port(host: str = "127.0.0.1", timeout_s: float = 2.0) -> CheckResult:
    """Check that a port of the loopback interface can be bound and reached."""
    try:
        with socket.create_server((host, 0)) as server:
            server.settimeout(timeout_s)
            with socket.create_connection(server.getsockname(), timeout_s):
                server.accept()[0].close()
    except OSError as error:
        cure = "several processes cannot talk here: allow TCP on the loopback interface (firewall, `ip link set lo up`)"
        return CheckResult("loopback port", "FAIL", f"{host}: {error.strerror or error}", cure)
    return CheckResult("loopback port", "ok", f"{host}: bound and reached")
