"""Density: how many real neighbourhoods a generated image lies in, on average; higher is better.

Source: M. F. Naeem et al., "Reliable fidelity and diversity metrics for generative models", ICML
2020, section 3.1, with k = 5. A robust form of precision: a single real outlier, with its large
neighbourhood, counts little. It is 1 for equal distributions, and may be above 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from paragan.core import metric
from paragan.core.metric import Direction, SampleFeatures, in_float64
from paragan.metrics._neighbours import distances, radii

K = 5


@dataclass(frozen=True)
class Metric(metric.Metric):
    """Density >= 0. Memory does not grow with the number of generated images."""

    name = "density"
    direction = Direction.HIGHER
    note = (
        "How densely real images surround generated ones in feature space; 1 for a perfect generator. Low: images "
        "of poor quality; above 1: images keep to the most usual real ones."
    )
    names_extractor = True
    min_images = K + 1
    max_images = 10_000  # the cost is quadratic in this number
    settings: ClassVar[Mapping[str, Any]] = {"k": K}
    is_default = False
    order = 14
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
        found = sum(int((block <= self.radius_N).sum()) for block in blocks)
        return replace(self, found=self.found + found, count=self.count + len(samples))

    def merge(self, other: Metric) -> Metric:
        """Return a metric that includes the images of both."""
        return replace(self, found=self.found + other.found, count=self.count + other.count)

    def compute(self) -> float:
        """Return the mean number of neighbourhoods of an image, divided by k."""
        return self.found / (K * max(1, self.count))
