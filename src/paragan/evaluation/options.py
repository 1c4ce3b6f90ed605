"""Options of scores. This module does not import torch."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from paragan.core import registry
from paragan.core.option_types import Category, Choice, Count, Natural


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Scoring of a run and sampling of its generator."""

    num_images: Count = 2000
    """Samples per score. Data of pairs is scored against its held-out targets instead."""
    features: Annotated[Choice, Category("features")] | None = field(
        default_factory=lambda: Choice("auto", registry.options("features", "auto")())
    )
    """Network in whose features images are compared; null switches scores off.

    `auto` is the packaged network of the data set if it has one for its images, otherwise `judge`,
    a small CNN trained on this run's real images.
    """
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Number format of the network of `features`. Scores of different formats do not compare."""
    batch_size: Count | None = None
    """Images per call of the network of `features`; null: 500, or 50 for the Inception networks and `exported`."""
    metrics: tuple[Annotated[Choice, Category("metrics")], ...] | None = None
    """Metrics of a score, in order; null: fd, label_accuracy, class_variance_min, class_variance_mean and coverage,
    or l1, psnr and ssim for pairs: those that apply to the data.

    The first with a direction decides which checkpoint is the best.
    """
    resamples: Natural = 20
    """Random halves of the images from which the interval of each value is estimated; 0: none."""
    mode: Literal["inline", "background"] = "inline"
    """`inline`: training waits for each score. `background`: another process scores a checkpoint."""
    sampling: Literal["eval", "train-stats"] = "eval"
    """Sampling for scores and images: `eval`, or `train-stats` (batch statistics, dropout on)."""
