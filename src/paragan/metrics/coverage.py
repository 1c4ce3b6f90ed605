"""Coverage: share of real images that have a generated image nearby; higher is better.

Source: M. F. Naeem et al., "Reliable fidelity and diversity metrics for generative models", ICML 2020, section 3.2,
with k = 5 as recommended there. Near is within the distance to the k-th nearest other real image. Coverage grows with
the number of generated images, so as many are taken as real ones; a perfect generator then has 1 - 2^-k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from paragan.core import metric
from paragan.core.metric import Direction, SampleFeatures, in_float64
from paragan.metrics._neighbours import nearest, radii

K = 5


@dataclass(frozen=True)
class Metric(metric.Metric):
    """Coverage in [0, 1]. Memory does not grow with the number of generated images."""

    name = "coverage"
    is_share = True
    direction = Direction.HIGHER
    note = (
        "Share of real images that have a generated image nearby in feature space; 0.97 for a "
        "perfect generator. Low: parts of the data are never generated."
    )
    reference = "held_out"
    min_images = K + 1
    max_images = 2000  # the cost is quadratic in this number, and a run has this metric by default
    settings: ClassVar[Mapping[str, Any]] = {"k": K}
    real_NF: Tensor
    radius_N: Tensor
    nearest_N: Tensor

    @classmethod
    def from_reference(cls, real: SampleFeatures, options: object = None) -> Metric:
        """Return an empty metric with the radius around each image of `real`."""
        real_NF = in_float64(real.features_BF)
        return cls(real_NF, radii(real_NF, K), torch.full((len(real_NF),), torch.inf, dtype=torch.float64))

    def update(self, samples: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        if not len(samples):
            return self
        nearest_N = nearest(self.real_NF, in_float64(samples.features_BF))
        return replace(self, nearest_N=self.nearest_N.minimum(nearest_N))

    def merge(self, other: Metric) -> Metric:
        """Return a metric that includes the images of both."""
        return replace(self, nearest_N=self.nearest_N.minimum(other.nearest_N))

    def compute(self) -> float:
        """Return the share of real images with a generated image within their radius."""
        return float((self.nearest_N <= self.radius_N).double().mean())
