"""Mean absolute difference to the target, of values in [-1, 1]; lower is better, 0 is equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from paragan.metrics._pairs import PairMean


@dataclass(frozen=True)
class Metric(PairMean):
    """l1 in [0, 2]. Blurred images have a good l1; look at the samples, too."""

    name: ClassVar[str] = "l1"

    @staticmethod
    def of_each(made_BCHW: Tensor, target_BCHW: Tensor) -> Tensor:
        """l1 of each image: (B,), float64."""
        return (made_BCHW - target_BCHW).abs().flatten(1).mean(1)
