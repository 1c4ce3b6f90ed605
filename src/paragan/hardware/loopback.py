"""Check that two processes of this machine can all-reduce through gloo, and how fast their link is.

Run as a program, it is one of the two processes, which rendezvous through a file.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

from paragan.core.errors import RankError
from paragan.core.local_processes import LocalProcesses
from paragan.hardware.health import CheckResult

TIMEOUT_S = 30.0
ASSUMED_BYTES_PER_S = 1.5e9  # by `plan`: gloo between processes of a host
_GBIT = 1e9 / 8
_CURE = (
    "several processes cannot train here: allow TCP on 127.0.0.1 (firewall, sandbox) or name the "
    "interface, GLOO_SOCKET_IFNAME=lo"
)


_COMMAND = ("-m", "paragan.hardware.loopback")
_NUM_BYTES = 1 << 22
_ROUNDS = 4  # the first one also connects the processes


def all_reduce(command: tuple[str, ...] = _COMMAND, timeout_s: float = TIMEOUT_S) -> CheckResult:
    """Check one all-reduce between two child processes, and their link."""
    try:
        ms, bytes_per_s = measure(command, timeout_s)
    except RankError as error:
        return CheckResult("gloo", "FAIL", str(error), _CURE)
    return CheckResult("gloo", "ok", f"two processes added up a number in {ms:.0f} ms; {describe_link(bytes_per_s)}")


def describe_link(bytes_per_s: float) -> str:
    """Return the bandwidth of the link, next to what a plan assumes."""
    return f"link {bytes_per_s / _GBIT:.3g} Gbit/s, `plan --network loopback` assumes {ASSUMED_BYTES_PER_S / _GBIT:.3g}"


def measure(command: tuple[str, ...] = _COMMAND, timeout_s: float = TIMEOUT_S) -> tuple[float, float]:
    """Return the milliseconds of one all-reduce between two child processes, and the bytes per second of a link.

    Both have ended when this returns. `RankError`: they did not meet.
    """
    with tempfile.TemporaryDirectory() as folder, LocalProcesses() as processes:
        logs = [Path(folder, f"rank-{rank}.log") for rank in range(2)]
        for rank, log in enumerate(logs):
            words = [sys.executable, "-P", *command, str(rank), str(timeout_s / 2), f"{folder}/store"]
            processes.start(words, log=log)
        if not processes.wait(timeout_s):
            raise RankError(f"two processes did not meet within {timeout_s:g} s")
        texts = [log.read_text() for log in logs]
        has_failed = processes.has_failed
    errors = re.findall(r"^[\w.]*Error\b.*", "\n".join(texts), re.M)
    if has_failed:
        raise RankError((errors or ["two processes could not add up a number"])[0][:200])
    ms, seconds = map(float, texts[1].split()[-2:])
    return ms, _NUM_BYTES / seconds


def run_rank(rank: int, timeout_s: float, store_path: str) -> None:
    """Run one of the two processes; prints milliseconds of an all-reduce, and seconds of a message each way."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    patience = timedelta(seconds=timeout_s)
    store = dist.FileStore(store_path, 2)
    store.set_timeout(patience)
    began = time.monotonic()
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=patience)
    ones = torch.ones(1)
    dist.all_reduce(ones)
    took_s = time.monotonic() - began
    seconds = min([_exchange(rank) for _ in range(_ROUNDS)][1:])
    dist.destroy_process_group()
    assert ones.item() == 2
    print(f"{took_s * 1000:.0f} {seconds}")


def _exchange(rank: int) -> float:
    """Return the seconds in which both processes send to the other one, at the same time."""
    import torch
    import torch.distributed as dist

    sent = torch.ones(_NUM_BYTES // 4)
    received = torch.empty_like(sent)
    dist.barrier()
    began = time.monotonic()
    for work in (dist.isend(sent, 1 - rank), dist.irecv(received, 1 - rank)):
        assert work is not None  # None for processes outside of the group
        work.wait()
    return time.monotonic() - began


if __name__ == "__main__":
    run_rank(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
