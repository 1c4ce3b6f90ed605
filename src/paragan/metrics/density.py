"""Density: how many real neighbourhoods a generated image lies in, on average; higher is better.

Source: M. F. Naeem et al., "Reliable fidelity and diversity metrics for generative models", ICML
2020, section 3.1, with k = 5. A robust form of precision: a single real outlier, with its large
neighbourhood, counts little. It is 1 for equal distributions, and may be above 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from paragan.core.metric import Direction
from paragan.metrics._neighbours import NeighbourhoodMean

K = 5


@dataclass(frozen=True)
class Metric(NeighbourhoodMean):
    """Density >= 0."""

    name = "density"
    note = (
        "How densely real images surround generated ones in feature space; 1 for a perfect generator. Low: images "
        "of poor quality; above 1: images keep to the most usual real ones."
    )
    direction = Direction.HIGHER
    min_images = K + 1
    settings: ClassVar[Mapping[str, Any]] = {"k": K}
    k = K

    @staticmethod
    def value_of_each(is_within_BN: Tensor) -> Tensor:
        """Return the number of neighbourhoods of each image, divided by k."""
        return is_within_BN.double().sum(1) / K
