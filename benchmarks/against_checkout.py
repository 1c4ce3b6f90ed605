"""Cost of a training step of images against that of another checkout, such as an earlier revision.

Two processes, one per checkout, take the same steps in turn; CPU seconds of this one / the other one.
Aim: <= 1.0 x.

git worktree add --detach ../earlier REVISION
python -m benchmarks.against_checkout ../earlier [pairs]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.paired_timing import compare, keep

ROOT = Path(__file__).resolve().parents[1]
CASES = {
    "digits": (["digits"], 60),
    "sngan": (["digits", "model=sngan", "data.size=32", "train.batch=16"], 6),
    "fastgan": (["own-128", "data.name=synthetic", "data.size=64"], 2),
}
LENGTH = ["train.kimg=1000000", "train.threads=1", "every.save_kimg=0", "every.sample_kimg=0", "every.score_kimg=0"]
WORKER = """
import sys, tempfile, time
from pathlib import Path
import torch
from paragan import build
from paragan.config import read_recipe
recipe, *words = sys.argv[2:]
torch.set_num_threads(1)
config = read_recipe(recipe, [*words, "evaluation.features=null"])
with tempfile.TemporaryDirectory() as folder:
    loop = build.trainer(config, Path(folder), lambda line: None, lambda: False)
    for line in sys.stdin:
        start = time.process_time()
        list(loop.run(int(sys.argv[1])))
        print(time.process_time() - start, flush=True)
"""


class Worker:
    """Process that takes `steps` steps per call with the code of a checkout; `seconds` of CPU so far.

    Where memory lies differs from process to process, and the speed with it: so every third call has a new one.
    """

    def __init__(self, checkout: Path, words: list[str], steps: int) -> None:
        self.seconds = 0.0
        self.calls = 0
        self.command = [sys.executable, "-P", "-c", WORKER, str(steps), *words, *LENGTH]
        self.environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
        self._start()

    def __call__(self) -> None:
        if self.calls and self.calls % 3 == 0:
            self.close()
            self._start()
        self.calls += 1
        self.seconds += self._run()

    def _start(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(self.command, env=self.environment, **pipes)
        self._run()  # a warm-up

    def _run(self) -> float:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(60)


def clock_of(workers: list[Worker]) -> Callable[[], float]:
    return lambda: sum(worker.seconds for worker in workers)


def main(other: str, pairs: int = 15) -> None:
    ratios = {}
    for name, (words, steps) in CASES.items():
        workers = [Worker(checkout, words, steps) for checkout in (ROOT, Path(other))]
        try:
            ratios[name] = compare(*workers, pairs, clock=clock_of(workers))
        finally:
            for worker in workers:
                worker.close()
    revision = subprocess.run(["git", "-C", other, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    keep(
        "against_checkout", ratios, f"steps per call {[n for _, n in CASES.values()]}; other {revision.stdout.strip()}"
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
