"""Options of scores. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from paragan.core.option_types import FilePath, Interval


@dataclass(frozen=True)
class EvaluationOptions:
    """How a run is scored and its generator sampled."""

    num_images: Annotated[int, Interval(ge=6)] = 2000
    """Samples per score. Data of pairs is scored against its held-out targets instead."""
    features: Literal["auto", "judge", "mnist", "cifar10", "mnist-cnn", "cifar-resnet20", "cifar-resnet56"] | None = (
        "auto"
    )
    """Features that scores are measured in: `auto` is the packaged network of the data set, `mnist` or `cifar10`, where
    there is one for its images, otherwise `judge`, a small CNN trained on this run's real images. null switches
    scores off; the others read their weights from a file.
    """
    weights: FilePath | None = None
    """File of the ready-made network's weights; null: next to the data."""
    mode: Literal["eval", "train-stats"] = "eval"
    """How the generator is sampled for scores and images: `eval`, or `train-stats` as in training (batch
    statistics, dropout on).
    """
