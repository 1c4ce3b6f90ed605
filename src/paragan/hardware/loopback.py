"""Two processes of this machine add up 1 and 1 through gloo: what training on several processes will do.

Run as a program it is one of the two: rank 0 prints the port of its store, rank 1 reads it and prints milliseconds.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from typing import IO

from paragan.hardware.health import CheckResult

TIMEOUT_S = 30.0
_CURE = (
    "several processes cannot train here: allow TCP on 127.0.0.1 (firewall, sandbox) or name the interface, "
    "GLOO_SOCKET_IFNAME=lo"
)


def all_reduce(
    command: tuple[str, ...] = ("-m", "paragan.hardware.loopback"), timeout_s: float = TIMEOUT_S
) -> CheckResult:
    """One all-reduce between two processes; both are gone when this returns."""
    # a file for each: lines of processes that write to one file at the same moment may be interleaved
    with tempfile.TemporaryFile("w+") as first_log, tempfile.TemporaryFile("w+") as second_log:
        patience = str(timeout_s / 2)
        first = _start((*command, "0", patience), first_log)
        second = _start((*command, "1", patience), second_log, first.stdout)
        try:
            out, _ = second.communicate(timeout=timeout_s)
            first.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return CheckResult("gloo", "FAIL", f"two processes did not meet within {timeout_s:g} s", _CURE)
        finally:
            for process in (first, second):
                process.kill()
                process.wait()
                process.stdout.close()  # type: ignore[union-attr]
        errors = [line for log in (first_log, second_log) for line in _error_lines(log)]
    if first.returncode or second.returncode:
        return CheckResult("gloo", "FAIL", (errors or ["two processes could not add up a number"])[0][:200], _CURE)
    return CheckResult("gloo", "ok", f"two processes added up a number in {out.strip()} ms")


def _error_lines(log: IO[str]) -> list[str]:
    log.seek(0)
    return re.findall(r"^[\w.]*Error\b.*", log.read(), re.M)


def _start(words: tuple[str, ...], log: IO[str], given: IO[str] | None = None) -> subprocess.Popen[str]:
    source = subprocess.DEVNULL if given is None else given
    command = [sys.executable, "-P", *words]
    return subprocess.Popen(command, stdin=source, stdout=subprocess.PIPE, stderr=log, text=True)


def run_rank(rank: int, timeout_s: float) -> None:
    """One of the two processes."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    from paragan.core.dist import serve_store

    torch.set_num_threads(1)
    patience = timedelta(seconds=timeout_s)
    port = 0 if rank == 0 else int(sys.stdin.readline())
    if rank == 0:
        store = serve_store("127.0.0.1", 0, patience)
        print(store.port, flush=True)
    else:
        store = dist.TCPStore("127.0.0.1", port, 2, False, patience, wait_for_workers=False)
    began = time.monotonic()
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=patience)
    ones = torch.ones(1)
    dist.all_reduce(ones)
    took_s = time.monotonic() - began
    dist.barrier()  # the store lives in rank 0
    dist.destroy_process_group()
    assert ones.item() == 2
    if rank == 1:
        print(f"{took_s * 1000:.0f}")


if __name__ == "__main__":
    run_rank(int(sys.argv[1]), float(sys.argv[2]))
