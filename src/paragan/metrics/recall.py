"""Recall: share of real images that lie among the generated ones; higher is better.

Source: as for `precision`, with the roles of the two sets exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from paragan.core.metric import Direction, SampleFeatures, in_float64
from paragan.metrics._neighbours import radii, require_more_than, within
from paragan.metrics.base.running import RunningMetric
from paragan.metrics.precision import K


@dataclass(frozen=True)
class Metric(RunningMetric):
    """Recall in [0, 1]. It holds the features of all generated images."""

    name = "recall"
    is_share = True
    direction = Direction.HIGHER
    note = (
        "Share of real images that lie among the generated ones in feature space. Low: parts of the data are missing."
    )
    names_extractor = True
    min_images = K + 1
    max_images = 10_000  # the cost is quadratic in this number
    settings: ClassVar[Mapping[str, Any]] = {"k": K}
    joined = ("generated_NF",)
    real_NF: Tensor
    generated_NF: Tensor

    @classmethod
    def from_reference(cls, real: SampleFeatures, options: object = None) -> Metric:
        """Return an empty metric with the real images."""
        real_NF = in_float64(real.features_BF)
        require_more_than(K, real_NF)
        return cls(real_NF, real_NF[:0])

    def update(self, samples: SampleFeatures) -> Metric:
        """Return a metric that includes these images."""
        return self.including(generated_NF=in_float64(samples.features_BF))

    def compute(self) -> float:
        """Return the share. Raises `ConfigError` for no more than k images."""
        radius_M = radii(self.generated_NF, K)
        blocks = within(self.real_NF, self.generated_NF, radius_M)
        num_within = sum(int(is_within_nM.any(1).sum()) for is_within_nM in blocks)
        return num_within / len(self.real_NF)
