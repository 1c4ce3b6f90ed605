"""Scores of a finished or stopped run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paragan.config import read_recipe
from paragan.config.sections import outside_of_run
from paragan.core.errors import ConfigError
from paragan.core.outside_code import CodeFolder
from paragan.evaluation.score import Score
from paragan.hardware.deterministic import deterministic_kernels
from paragan.runs.open_run import config_path, open_run
from paragan.writers.console import score_line


@dataclass(frozen=True)
class RunScore:
    """A score and the step of its checkpoint."""

    step: int
    score: Score

    def to_json(self) -> dict[str, Any]:
        """Return the metrics, their intervals, the metrics of real images, the number of images and the protocol."""
        score = self.score
        return {
            "metrics": score.metrics,
            "intervals": score.intervals,
            "real": score.real,
            "num_images": score.num_images,
            "protocol": score.protocol,
        }

    def __str__(self) -> str:
        line = score_line(self.score.values)
        return f"step {self.step}  {line}  ({self.score.num_images} images)"


def evaluate_run(
    path: str | Path,
    num_images: int | None = None,
    *,
    seed: int | None = None,
    best: bool = False,
    trust: bool | CodeFolder = False,
    steps: int | None = None,
) -> RunScore:
    """Score the averaged generator of a run folder, as `paragan eval` does.

    An exported file cannot be scored: the data and the trained extractor belong to the run folder.
    num_images: generated for the score; None: as many as for the scores of the run. seed: of the
    latents; None: the run's. best: use the checkpoint with the best score, instead of the newest.
    trust: import outside code that the config names. steps: of the generator's solver, in place of
    `model.steps`. Raises children of `paragan.ParaganError`.
    """
    config = read_recipe(str(config_path(Path(path))), outside=outside_of_run(trust))
    with deterministic_kernels(config.train.deterministic):
        trainer = open_run(Path(path), num_images, trust, best, steps=steps)
        if trainer.score is None:
            key, value = ("metrics", "[l1]") if trainer.prior.reads_batches else ("features", "auto")
            raise ConfigError(f"{path} has no scores (evaluation.{key}=null); resume it with evaluation.{key}={value}")
        prior = trainer.prior if seed is None else replace(trainer.prior, seed=seed)
        return RunScore(trainer.clock.step, trainer.compute_score(prior))
