"""Precision: share of generated images that lie among the real ones; higher is better.

Source: T. Kynkaanniemi et al., "Improved precision and recall metric for assessing generative
models", NeurIPS 2019, equation 1, with k = 3: an image lies among the real ones if it is nearer to one
of them than that one's k-th nearest other real image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from paragan.core import metric
from paragan.core.metric import Direction, SampleFeatures, in_float64
from paragan.metrics._neighbours import distances, radii

K = 3


@dataclass(frozen=True)
class Metric(metric.Metric):
    """Precision in [0, 1]. Memory does not grow with the number of generated images."""

    name = "precision"
    direction = Direction.HIGHER
    note = "Share of generated images that lie among the real ones in feature space. Low: images of poor quality."
    names_extractor = True
    min_images = K + 1
    max_images = 10_000  # the cost is quadratic in this number
    settings: ClassVar[Mapping[str, Any]] = {"k": K}
    is_default = False
    order = 12
    real_NF: Tensor
    radius_N: Tensor
    found: int = 0
    count: int = 0

    @classmethod
    def from_reference(cls, real: SampleFeatures, options: Any = None) -> Metric:
        """Return an empty metric with the radius around each real image."""
        real_NF = in_float64(real.features_BF)
        return cls(real_NF, radii(real_NF, K))

    def update(self, samples: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        blocks = distances(in_float64(samples.features_BF), self.real_NF)
        found = sum(int((block <= self.radius_N).any(1).sum()) for block in blocks)
        return replace(self, found=self.found + found, count=self.count + len(samples))

    def merge(self, other: Metric) -> Metric:
        """Return a metric that includes the images of both."""
        return replace(self, found=self.found + other.found, count=self.count + other.count)

    def compute(self) -> float:
        """Return the share."""
        return self.found / max(1, self.count)
