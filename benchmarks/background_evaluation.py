"""Cost for the trainer of scores that another process computes: CPU seconds of the same steps with and without them.

Aim: with / without <= 1.03. python -m benchmarks.background_evaluation [pairs] [steps]
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.paired_timing import compare, keep
from paragan import build
from paragan.config import dump, read_recipe
from paragan.engine.training_loop import TrainingLoop

WORDS = (
    *("train.threads=1", "train.kimg=1000000", "every.sample_kimg=0", "every.save_kimg=0", "every.score_kimg=0"),
    *("evaluation.num_images=2000", "evaluation.features=judge", "evaluation.mode=background", "every.check_steps=0"),
)


class Run:
    """A run of `digits`. Each call trains `steps` steps, after a checkpoint or a score in the background."""

    def __init__(self, folder: Path, steps: int) -> None:
        folder.mkdir()
        config = read_recipe("digits", list(WORDS))
        (folder / "config.yaml").write_text(dump(config))
        self.trainer: TrainingLoop = build.trainer(config, folder, print, lambda: False)
        self.steps = steps
        self.scores = 0
        self.cpu_s = 0.0
        self.train()

    def train(self) -> None:
        for event in self.trainer.run(num_steps=self.steps):
            self.scores += event.kind == "score"

    def with_checkpoint(self) -> None:
        self.trainer.save()
        self.train()

    def with_score(self) -> None:
        """The process of the scores runs only here, so that it does not slow the other half of a pair."""
        self._signal(signal.SIGCONT)
        before = self._child_cpu_s()
        for _ in self.trainer.scores():
            pass
        self.train()
        self.cpu_s += self._child_cpu_s() - before
        self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        for process in self._processes():
            os.kill(process.pid, number)

    def _child_cpu_s(self) -> float:
        ticks = 0
        for process in self._processes():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def _processes(self):
        assert self.trainer.background is not None
        return self.trainer.background.process._processes.running


def main(pairs: int, steps: int) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        scored = Run(folder / "scored", steps)
        plain = Run(folder / "plain", steps)
        ratios = {
            "scores and checkpoints / checkpoints": compare(scored.with_score, plain.with_checkpoint, pairs),
            "scores and checkpoints / neither": compare(scored.with_score, plain.train, pairs),
        }
        assert scored.trainer.background is not None
        scored.trainer.background.process.end()
        done = f"{scored.scores} scores of 2,000 images, {scored.cpu_s:.0f} s CPU of their process meanwhile"
        note = f"digits, one score per {steps} steps at most; {done}; load average {os.getloadavg()[0]:.0f}"
        keep("background-evaluation", ratios, note)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 21, int(sys.argv[2]) if len(sys.argv) > 2 else 100)
