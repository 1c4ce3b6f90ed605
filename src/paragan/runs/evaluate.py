"""Scores of a finished or stopped run, and extractors of features for images without a run."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from paragan.config import read_recipe
from paragan.config.sections import outside_of_run
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.outside_code import CodeFolder
from paragan.core.printable import counted
from paragan.datasets.base.in_memory import InMemorySource
from paragan.evaluation.score import Score
from paragan.evaluation.scorer import extractor_name
from paragan.features.base.extractor import ExtractorContext, FeatureExtractor
from paragan.hardware.deterministic import deterministic_kernels
from paragan.hardware.device import device_by_name
from paragan.runs.open_run import config_path, open_run
from paragan.writers.console import whole_score_line

_SIDE = 32  # of images that stand for those of a data set; extractors read their channels alone


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
        line = whole_score_line(self.score.values)
        return f"step {self.step}  {line}  ({counted(self.score.num_images, 'image')})"


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

    An exported file cannot be scored: the data and the trained extractor belong to the run folder. num_images:
    generated for the score; None: as many as for the scores of the run. seed: of the latents; None: the run's. best:
    use the checkpoint with the best score, instead of the newest. trust: import outside code that the config names.
    steps: of the generator's solver, in place of `model.steps`. Raises children of `paragan.ParaganError`.
    """
    config = read_recipe(str(config_path(Path(path))), outside=outside_of_run(trust))
    with deterministic_kernels(config.train.deterministic):
        trainer = open_run(Path(path), num_images, trust, best, steps=steps)
        if trainer.score is None:
            key, value = ("metrics", "[l1]") if trainer.prior.reads_batches else ("features", "auto")
            raise ConfigError(f"{path} has no scores (evaluation.{key}=null); resume it with evaluation.{key}={value}")
        prior = trainer.prior if seed is None else replace(trainer.prior, seed=seed)
        return RunScore(trainer.clock.step, trainer.compute_score(prior))


def open_extractor(features: str, device: str = "auto") -> FeatureExtractor:
    """Return an extractor by its name, the path of a .pt2 file, or {name: …, …} as in a recipe.

    Raises `ConfigError` for one that is trained on the images of a run.
    """
    if features.endswith(".pt2"):
        features = f"{{name: exported, weights: {json.dumps(features)}}}"
    # by a recipe, so that names, options and messages are those of the setting
    choice = read_recipe("digits", [f"evaluation.features={features}"]).evaluation.features
    if choice is None or choice.name in ("auto", "judge"):
        raise ConfigError(
            f"--features {features} needs the images of a run; choose inception, cifar10, mnist, or a .pt2 file"
        )
    images = InMemorySource(torch.zeros(2, 3, _SIDE, _SIDE, dtype=torch.uint8))
    context = ExtractorContext(
        name=extractor_name(choice),
        train=images,
        held_out=images,
        device=device_by_name(device),
        log=lambda line: print(line, file=sys.stderr),
    )
    prepared = registry.load_module("features", choice.name).prepare(choice.options, context)
    extractor: FeatureExtractor = prepared if isinstance(prepared, FeatureExtractor) else prepared()
    return replace(extractor, name=extractor_name(choice))
