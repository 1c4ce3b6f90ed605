"""Processes that tests start: their environment, who is below them, and how they end."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCH")}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore", **more}


def kill(pid, number=signal.SIGKILL):
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def running(command, **options):
    """A process that is killed where the block ends: leaving `subprocess.Popen` itself waits for ever."""
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        with suppress(ValueError):  # its pipes are closed
            process.communicate(timeout=60)


@contextmanager
def guarded(command, **options):
    """A process that ends with the block, or with this process however that ends; all below it, too."""
    words = [sys.executable, str(ROOT / "tests" / "guard.py"), *command]
    guard = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, **options)
    try:
        yield guard
    finally:
        guard.stdin.close()
        guard.wait(60)


def children(pid):
    """All below, the nearest first, whichever thread started them."""
    found = []
    with suppress(FileNotFoundError):  # the process has ended meanwhile
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                found += [int(word) for word in path.read_text().split()]
    return found + [lower for child in found for lower in children(child)]


def listeners(pids):
    """The TCP addresses on which these processes listen, IPv4 and IPv6 (Linux)."""
    sockets = {link for pid in pids for link in _descriptors(pid)}
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            row = line.split()
            if row[3] == "0A" and f"socket:[{row[9]}]" in sockets:
                words = bytes.fromhex(row[1].partition(":")[0])
                ordered = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
                found.add(socket.inet_ntop(family, ordered))
    return found


def _descriptors(pid):
    found = []
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(os.readlink(path))
    return found


def wait_for(condition, process=None, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition() and (process is None or process.poll() is None) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()
