"""Variance of the features within each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Needs, SampleFeatures, in_float64
from paragan.metrics.base.running import RunningMetric

_ROUNDING = 1e-10  # share of the squares that sums of equal features in float64 may differ by


@dataclass(frozen=True)
class ClassMoments:
    """Moments per class: images, feature sums, sums of squared norms (float64); `+` merges."""

    count_K: Tensor
    sum_KF: Tensor
    squares_K: Tensor

    @classmethod
    def of(cls, judged: SampleFeatures, num_classes: int) -> ClassMoments:
        """Compute the moments of these features by requested label; others than the first classes do not count."""
        if judged.requested_labels_B is None:
            raise ConfigError("variance within classes needs images with requested labels; use data with classes")
        labels_B = judged.requested_labels_B.cpu()
        is_counted_B = labels_B < num_classes
        labels_B = labels_B[is_counted_B]
        features_BF = in_float64(judged.features_BF)[is_counted_B]
        zeros_K = torch.zeros(num_classes, dtype=torch.float64)
        return cls(
            zeros_K.index_add(0, labels_B, torch.ones(len(features_BF), dtype=torch.float64)),
            torch.zeros(num_classes, features_BF.shape[1], dtype=torch.float64).index_add(0, labels_B, features_BF),
            zeros_K.index_add(0, labels_B, features_BF.square().sum(1)),
        )

    def __add__(self, other: ClassMoments) -> ClassMoments:
        return ClassMoments(self.count_K + other.count_K, self.sum_KF + other.sum_KF, self.squares_K + other.squares_K)

    @property
    def variance_K(self) -> Tensor:
        """Unbiased variance, summed over the features; 0 for a class without two different images."""
        spread_K = self.squares_K - self.sum_KF.square().sum(1) / self.count_K.clamp(min=1)
        spread_K = spread_K.masked_fill(spread_K <= _ROUNDING * self.squares_K, 0)
        return spread_K / (self.count_K - 1).clamp(min=1)


@dataclass(frozen=True)
class VarianceRatio(RunningMetric):
    """Ratio of the variances within each class, generated over real.

    1: as varied as real; towards 0: the class has collapsed to a few images. A class with fewer than
    two images, real or compared with them, has no variance and does not count.
    """

    needs = frozenset({Needs.FEATURES, Needs.LABELS})
    added = ("generated",)
    real_K: Tensor
    generated: ClassMoments

    @classmethod
    def from_reference(cls, real: SampleFeatures, options: Any = None) -> Self:
        """Return an empty metric. Raises `ConfigError` if no class has two different real images."""
        if real.requested_labels_B is None or not len(real):
            raise ConfigError("variance within classes needs real images with labels; use a labelled data set")
        num_classes = int(real.requested_labels_B.max()) + 1
        variance_K = ClassMoments.of(real, num_classes).variance_K
        if not variance_K.any():
            raise ConfigError(
                "variance within classes: no class has two different real images; raise evaluation.num_images"
            )
        return cls(variance_K, ClassMoments.of(real.rows(0, 0), num_classes))

    def update(self, samples: SampleFeatures) -> Self:
        """Return a metric that includes these images."""
        return self.including(generated=ClassMoments.of(samples, len(self.real_K)))

    @property
    def ratios(self) -> Tensor:
        """Ratio of each class whose real images differ, among those with two here; `ConfigError` without one."""
        varied = (self.real_K > 0) & (self.generated.count_K > 1)
        if not varied.any():
            raise ConfigError("variance within classes: no class has two images; raise evaluation.num_images")
        return self.generated.variance_K[varied] / self.real_K[varied]
