"""Memory of the workers of a grid, beside that of an upstream-style process, which has one cell.

    python -m benchmarks.cellular_memory DATA_FOLDER

Of each process, in MB: resident, proportional (what is shared counts in parts) and its own alone. MNIST's images are
47 MB: where each worker holds a copy they are in what is its own.
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

_READY_S, _LOOK_S, _SETTLE_S = 300.0, 0.5, 20.0
_NAMES = {"Rss": "resident", "Pss": "proportional", "Private_Clean": "own", "Private_Dirty": "own"}


def memory(pid: int) -> dict[str, float]:
    """MB of a process."""
    found = {"resident": 0.0, "proportional": 0.0, "own": 0.0}
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
    with tempfile.TemporaryDirectory() as folder:
        words = [f"data.path={data}", f"workers={num}", f"grid.shape={shape}", "grid.batches=20", "train.kimg=1000"]
        more = ["evaluation.num_images=1000", "every.score_kimg=0", "every.sample_kimg=0", "--out", f"{folder}/run"]
        command = [sys.executable, "-m", "paragan", "train", "cellular-mnist", *words, *more]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            pids = _trained(run, num)
            return [{**memory(pid), "peak": peak(pid)} for pid in pids]
        finally:
            run.send_signal(signal.SIGINT)
            try:
                run.wait(60)
            except subprocess.TimeoutExpired:
                run.kill()


def _trained(run: subprocess.Popen, num: int) -> list[int]:
    """The workers' process ids, once all have worked for a while."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and run.poll() is None:
        pids = _children(run.pid)
        if len(pids) == num and min(map(_cpu_s, pids)) > _SETTLE_S:
            return pids
        time.sleep(_LOOK_S)
    raise SystemExit(f"found no {num} workers that train")


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
    return dict(zip(("resident", "proportional", "own", "peak"), map(float, values), strict=True))


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
    told = parser.parse_args()
    if told.upstream_style:
        alone(told.data)
        return
    stored = images(told.data).nbytes / 1e6
    found = {f"{num} workers": workers(told.data, num) for num in (1, 2, 4)}
    theirs = upstream_style(told.data)
    for name, of in found.items():
        print(name, *of, sep="\n  ")
    print("upstream-style, one cell", theirs, sep="\n  ")
    note = "MB; a 2x2 grid on MNIST, its cells shared out; own: of no other process"
    write("cellular-memory", {"note": note, "images_mb": stored, **found, "upstream-style, one cell": theirs})


if __name__ == "__main__":
    main()
