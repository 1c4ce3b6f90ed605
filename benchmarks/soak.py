"""A long run with scores, samples and checkpoints: growth of memory, and what kills cost.

Most of the time the run is left alone and its memory is read every second; then it is killed (SIGKILL)
several times, and the same command resumes it. python -m benchmarks.soak [minutes] [kills]
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import linear_regression, median

from benchmarks.record import write

SAVE_STEPS = 50
BATCH = 64
SETTINGS = (
    *("train.threads=1", "train.kimg=1000000", "every.log_steps=10", f"every.save_kimg={SAVE_STEPS * BATCH / 1000}"),
    *("every.sample_kimg=16", "every.score_kimg=64", "evaluation.num_images=500", "writers=[jsonl, images]"),
)
WARM_UP = 0.25  # of the undisturbed time, in which memory is not compared
QUIET_SHARE = 0.8  # of the time, without kills
WAIT_S = 300.0


class Run:
    """The command in a process, and what /proc says about it."""

    def __init__(self, out: Path) -> None:
        self.out = out
        words = [sys.executable, "-m", "paragan", "train", "digits", *SETTINGS, "--out", str(out)]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)

    def resident_mb(self) -> float:
        """Return the memory of the process that is in use now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def handles(self) -> tuple[int, int]:
        """Return the numbers of open files and of threads."""
        folder = Path(f"/proc/{self.process.pid}")
        return len(list((folder / "fd").iterdir())), len(list((folder / "task").iterdir()))

    def recorded_step(self) -> int:
        """Return the last step of the record; 0 without one."""
        path = self.out / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        steps = [json.loads(line)["step"] for line in lines[-20:] if '"kind": "step"' in line and line.endswith("}")]
        return max(steps, default=0)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. `RuntimeError`: the process has ended, or it takes too long."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the run has ended ({self.process.poll()}) or makes no progress")
            time.sleep(0.05)

    def end(self, number: int) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)


def watch(run: Run, seconds: float) -> tuple[list[float], list[float]]:
    """Return times in hours and memory in MB, once a second."""
    hours: list[float] = []
    memory_mb: list[float] = []
    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < seconds:
        hours.append(passed_s / 3600)
        memory_mb.append(run.resident_mb())
        time.sleep(1.0)
    return hours, memory_mb


def kill_once(run: Run, draws: random.Random) -> tuple[Run, float, int]:
    """Kill at a random moment after a checkpoint; return the resumed run, seconds to recover, steps repeated.

    Recovered: the record has a step beyond the one at the kill.
    """
    start = run.recorded_step()
    run.wait(lambda: run.recorded_step() > start + SAVE_STEPS)
    time.sleep(draws.random() * 2.0)
    run.end(signal.SIGKILL)
    killed_at = run.recorded_step()
    saved = max(int(path.name.removeprefix("step-")) for path in (run.out / "checkpoints").glob("step-*"))
    began = time.monotonic()
    again = Run(run.out)
    again.wait(lambda: again.recorded_step() > killed_at)
    return again, time.monotonic() - began, max(0, killed_at - saved)


def soak(minutes: float, kills: int, out: Path) -> dict[str, object]:
    """Return what is written to the results."""
    run = Run(out)
    try:
        run.wait(lambda: run.recorded_step() > 0)
        before = run.handles()
        hours, memory_mb = watch(run, QUIET_SHARE * minutes * 60)
        after = run.handles()
        steps = run.recorded_step()
        draws = random.Random(1)
        recoveries: list[tuple[float, int]] = []
        for _ in range(kills):
            run, seconds, repeated = kill_once(run, draws)
            recoveries.append((seconds, repeated))
        code = run.end(signal.SIGTERM)
    finally:
        run.process.kill()
    first = int(WARM_UP * len(hours))
    return {
        "minutes": minutes,
        "undisturbed": {
            "steps": steps,
            "memory_mb": [round(memory_mb[first], 1), round(memory_mb[-1], 1)],
            "growth_mb_per_hour": round(linear_regression(hours[first:], memory_mb[first:]).slope, 2),
            "open_files": [before[0], after[0]],
            "threads": [before[1], after[1]],
        },
        "kills": kills,
        "recovery_s": [round(seconds, 2) for seconds, _ in recoveries],
        "recovery_s_median": round(median(seconds for seconds, _ in recoveries), 2) if recoveries else None,
        "steps_repeated": [repeated for _, repeated in recoveries],
        "steps_between_checkpoints": SAVE_STEPS,
        "exit_code_of_the_last_stop": code,
    }


if __name__ == "__main__":
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    with tempfile.TemporaryDirectory() as folder:
        write("soak", soak(minutes, int(sys.argv[2]) if len(sys.argv) > 2 else 5, Path(folder) / "run"))
