"""Diversity: how far generated images are from one another, relative to real ones; 1 is ideal.

The mean perceptual distance of two generated images, as published for image-to-image translation (J.-Y.
Zhu et al., "Toward multimodal image-to-image translation", NeurIPS 2017, section 5.2), over that of two
real images. The distance is that of Zhang et al. 2018 for one layer of one position: the squared distance
of features that are scaled to unit norm. Over all pairs of images it needs only the sum of the features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Direction, SampleFeatures, in_float64
from paragan.metrics.base.running import RunningMetric

_ROUNDING = 1e-10  # share of the squares that sums of equal features in float64 may differ by


@dataclass(frozen=True)
class Metric(RunningMetric):
    """Ratio >= 0 of mean squared distances; exact over all pairs, and linear in time."""

    name = "diversity"
    direction = Direction.NEITHER
    note = (
        "Mean distance of two generated images in feature space, over that of two real images. About 1 is ideal; "
        "towards 0 the generator makes one image; above 1 its images differ more than real ones, as noise does."
    )
    names_extractor = True
    min_images = 2
    added = ("sum_F", "squares", "count")
    real_distance: float
    sum_F: Tensor
    squares: float = 0.0  # sum of the squared norms: 1 for each image, or 0 if its features are 0
    count: int = 0

    @classmethod
    def from_reference(cls, real: SampleFeatures, options: object = None) -> Metric:
        """Return an empty metric. Raises `ConfigError` if all real images have equal features."""
        unit_BF = _unit(real.features_BF)
        real_distance = _mean_distance(unit_BF.sum(0), float(unit_BF.square().sum()), len(real))
        if real_distance <= 0:
            raise ConfigError("diversity needs real images whose features differ; use another extractor")
        return cls(real_distance, torch.zeros_like(unit_BF[0]))

    def update(self, samples: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        unit_BF = _unit(samples.features_BF)
        return self.including(sum_F=unit_BF.sum(0), squares=float(unit_BF.square().sum()), count=len(samples))

    def compute(self) -> float:
        """Return the ratio. Raises `ConfigError` below two images."""
        return _mean_distance(self.sum_F, self.squares, self.count) / self.real_distance


def _unit(features_BF: Tensor) -> Tensor:
    """Scale features to unit norm; features of 0 remain."""
    return torch.nn.functional.normalize(in_float64(features_BF), dim=1)


def _mean_distance(sum_F: Tensor, squares: float, count: int) -> float:
    """Return the mean squared distance of two different rows with this sum, and this sum of squared norms."""
    if count < 2:
        raise ConfigError(f"diversity needs at least 2 images, not {count}; raise evaluation.num_images")
    spread = squares - float(sum_F.square().sum()) / count
    return 0.0 if spread <= _ROUNDING * squares else 2 * spread / (count - 1)
