"""Scores of a finished or stopped run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paragan.core.errors import ConfigError
from paragan.evaluation.score import Score
from paragan.runs.open_run import open_run
from paragan.writers.console import score_line


@dataclass(frozen=True)
class RunScore:
    """A score and the step of its checkpoint."""

    step: int
    score: Score

    def to_json(self) -> dict[str, Any]:
        """Return the metrics, the metrics of real images, the number of images and the protocol."""
        score = self.score
        numbers = {"metrics": score.metrics, "real": score.real, "num_images": score.num_images}
        return {**numbers, "protocol": score.protocol}

    def __str__(self) -> str:
        line = score_line(self.score.values)
        return f"step {self.step}  {line}  ({self.score.num_images} images)"


def evaluate_run(
    path: Path,
    num_images: int | None = None,
    seed: int | None = None,
    *,
    best: bool = False,
    trust: bool = False,
) -> RunScore:
    """Score the averaged generator of the run at `path`. Raises `ConfigError` if scores are off.

    The arguments are those of `open_run`; seed: of the latents.
    """
    run = open_run(path, num_images, trust, best)
    if run.trainer.score is None:
        hint = "resume it with evaluation.features=auto"
        raise ConfigError(f"{path} has no scores (evaluation.features=null); {hint}")
    return RunScore(run.trainer.clock.step, run.trainer.compute_score(run.prior(seed)))
