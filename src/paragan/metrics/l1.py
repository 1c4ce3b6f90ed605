"""Mean absolute difference to the target, of values in [-1, 1]; lower is better, 0 is equal."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paragan.core.metric import Direction
from paragan.metrics._mean import PairMean


@dataclass(frozen=True)
class Metric(PairMean):
    """L1 distance in [0, 2]. Blurred images have a good one; look at the samples, too."""

    name = "l1"
    direction = Direction.LOWER
    note = "Mean absolute difference between generated and target images, with values in [-1, 1]."
    order = 0

    @staticmethod
    def compare(made_BCHW: Tensor, target_BCHW: Tensor) -> Tensor:
        """Return the L1 distance of each pair, float64 (B,)."""
        return (made_BCHW - target_BCHW).abs().flatten(1).mean(1)
