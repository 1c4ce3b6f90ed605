"""Check that two processes of this machine can meet (rendezvous) and all-reduce through gloo.

Run as a program, it is one of the two processes, which rendezvous through a file.
"""

import re
import sys
import tempfile
import time
from pathlib import Path

from paragan.core.local_processes import LocalProcesses
from paragan.hardware.health import CheckResult

TIMEOUT_S = 30.0  # of both processes; one waits half as long for the other, so that its error comes first
_CURE = (
    "several processes cannot train here: allow TCP on 127.0.0.1 (firewall, sandbox) or name the "
    "interface, GLOO_SOCKET_IFNAME=lo"
)
_COMMAND = ("-m", "paragan.hardware.loopback")


def all_reduce(command: tuple[str, ...] = _COMMAND, timeout_s: float = TIMEOUT_S) -> CheckResult:
    """Check the rendezvous and an all-reduce of two child processes; both have ended when this returns."""
    with tempfile.TemporaryDirectory() as folder, LocalProcesses() as processes:
        logs = [Path(folder, f"rank-{rank}.log") for rank in range(2)]
        for rank, log in enumerate(logs):
            words = [sys.executable, "-P", *command, str(rank), str(timeout_s / 2), f"{folder}/store"]
            processes.start(words, log=log)
        if not processes.wait(timeout_s):
            return CheckResult("gloo", "FAIL", f"two processes did not meet within {timeout_s:g} s", _CURE)
        texts = [log.read_text() for log in logs]
        has_failed = processes.has_failed
    if has_failed:
        errors = re.findall(r"^[\w.]*Error\b.*", "\n".join(texts), re.M)
        error = errors[0][:200] if errors else "two processes could not add up a number"
        return CheckResult("gloo", "FAIL", error, _CURE)
    return CheckResult("gloo", "ok", f"two processes added up a number in {texts[-1].split()[-1]} ms")


def run_rank(rank: int, timeout_s: float, store_path: str) -> None:
    """Run one of the two processes; prints milliseconds of the rendezvous and an all-reduce, as its last word."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    timeout = timedelta(seconds=timeout_s)
    store = dist.FileStore(store_path, 2)
    store.set_timeout(timeout)
    start = time.monotonic()
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timeout)
    ones = torch.ones(1)
    dist.all_reduce(ones)
    duration_s = time.monotonic() - start
    dist.destroy_process_group()
    assert ones.item() == 2
    print(f"{duration_s * 1000:.0f}")


if __name__ == "__main__":
    run_rank(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
