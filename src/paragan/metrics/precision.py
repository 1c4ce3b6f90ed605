"""Precision: share of generated images that lie among the real ones; higher is better.

Source: T. Kynkaanniemi et al., "Improved precision and recall metric for assessing generative
models", NeurIPS 2019, equation 1, with k = 3: an image lies among the real ones if it is nearer to one
of them than that one's k-th nearest other real image.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from paragan.core.metric import Direction
from paragan.metrics._neighbours import NeighbourhoodMean

K = 3


@dataclass(frozen=True)
class Metric(NeighbourhoodMean):
    """Precision in [0, 1]."""

    name = "precision"
    is_share = True
    note = "Share of generated images that lie among the real ones in feature space. Low: images of poor quality."
    direction = Direction.HIGHER
    min_images = K + 1
    settings: ClassVar[Mapping[str, Any]] = {"k": K}
    k = K

    @staticmethod
    def value_of_each(is_within_BN: Tensor) -> Tensor:
        """Return 1 for each image within any neighbourhood, else 0."""
        return is_within_BN.any(1)
