"""Memory of the workers of a grid, next to that of an upstream-style process, which has one cell.

    python -m benchmarks.cellular_memory DATA_FOLDER

Of each process, in MB: resident, proportional (what is shared counts in parts) and private. MNIST's images are
47 MB: where each worker holds a copy they are private.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.cellular_comparison import images, upstream
from benchmarks.record import write
from paragan.core.local_processes import LocalProcesses

_READY_S = 300.0
_LOOK_S = 0.5
_SETTLE_S = 20.0  # CPU time of a worker that has trained for a while
_END_S = 60.0
_NAMES = {"Rss": "resident", "Pss": "proportional", "Private_Clean": "private", "Private_Dirty": "private"}


def memory(pid: int) -> dict[str, float]:
    """MB of a process."""
    found = {"resident": 0.0, "proportional": 0.0, "private": 0.0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, kilobytes = line.split()[:2]
        if (label := _NAMES.get(name.rstrip(":"))) is not None:
            found[label] += int(kilobytes) / 1024
    return {label: round(value, 1) for label, value in found.items()}


def peak(pid: int) -> float:
    """MB resident, the most so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


def workers(data: Path, num: int, shape: str = "2x2") -> list[dict[str, float]]:
    """Of the workers of a run that is under way."""
    with tempfile.TemporaryDirectory() as folder, LocalProcesses() as processes:
        words = [f"data.path={data}", f"workers={num}", f"grid.shape={shape}", "grid.batches=20", "train.kimg=1000"]
        more = ["evaluation.num_images=1000", "every.score_kimg=0", "every.sample_kimg=0", "--out", f"{folder}/run"]
        command = [sys.executable, "-m", "paragan", "train", "cellular-mnist", *words, *more]
        processes.start(command, log=Path(folder) / "log")
        (run,) = processes.processes
        try:
            pids = _trained(run, num)
            return [{**memory(pid), "peak": peak(pid)} for pid in pids]
        finally:
            run.send_signal(signal.SIGINT)
            processes.wait(_END_S)


def _trained(run: subprocess.Popen[bytes], num: int) -> list[int]:
    """The workers' process ids, once all have worked for a while."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and run.poll() is None:
        pids = _children(run.pid)
        if len(pids) == num and min(map(_cpu_s, pids)) > _SETTLE_S:
            return pids
        time.sleep(_LOOK_S)
    raise SystemExit(f"no {num} workers that train within {_READY_S:g} s")


def _children(pid: int) -> list[int]:
    """Workers among all that descend from it."""
    found, ways = [], [pid]
    while ways:
        text = "".join(p.read_text() for p in Path(f"/proc/{ways.pop()}/task").glob("*/children") if p.exists())
        below = [int(word) for word in text.split()]
        ways += below
        found += [one for one in below if b"worker" in Path(f"/proc/{one}/cmdline").read_bytes()]
    return sorted(set(found))


def _cpu_s(pid: int) -> float:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / 100


def upstream_style(data: Path) -> dict[str, float]:
    """Of a process with one cell that has trained; as upstream has it, one of these for each cell."""
    words = [sys.executable, "-m", "benchmarks.cellular_memory", str(data), "--upstream-style"]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    values = found.stdout.splitlines()[-1].split()
    return dict(zip(("resident", "proportional", "private", "peak"), map(float, values), strict=True))


def alone(data: Path) -> None:
    """An upstream-style cell in this process; prints what it takes."""
    torch.set_num_threads(1)
    upstream(data, "1x1", 20).iterate()
    found = memory(os.getpid())
    print(*found.values(), peak(os.getpid()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--upstream-style", action="store_true", help="only this, in this process")
    arguments = parser.parse_args()
    if arguments.upstream_style:
        alone(arguments.data)
        return
    stored = images(arguments.data).nbytes / 1e6
    found = {f"{num} workers": workers(arguments.data, num) for num in (1, 2, 4)}
    theirs = upstream_style(arguments.data)
    for name, of in found.items():
        print(name, *of, sep="\n  ")
    print("upstream-style, one cell", theirs, sep="\n  ")
    note = "MB; a 2x2 grid on MNIST, its cells divided; private: of no other process"
    write("cellular-memory", {"note": note, "images_mb": stored, **found, "upstream-style, one cell": theirs})


if __name__ == "__main__":
    main()
