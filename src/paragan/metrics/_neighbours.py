"""Distances between rows of features, in blocks that bound the memory."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import SampleFeatures, in_float64
from paragan.metrics.base.running import RunningMetric

_ROWS_AT_ONCE = 512


def distances(a_NF: Tensor, b_MF: Tensor) -> Iterator[Tensor]:
    """Yield blocks (n, M) of the Euclidean distances between rows of two sets, in order of `a_NF`."""
    for rows in a_NF.split(_ROWS_AT_ONCE):
        yield torch.cdist(rows, b_MF, compute_mode="donot_use_mm_for_euclid_dist")


def nearest(a_NF: Tensor, b_MF: Tensor) -> Tensor:
    """Return the distance of each row of `a_NF` to its nearest row of `b_MF`, (N,)."""
    return torch.cat([block.amin(1) for block in distances(a_NF, b_MF)])


def radii(x_NF: Tensor, k: int) -> Tensor:
    """Return the distance of each row to its k-th nearest other row, (N,).

    Raises `ConfigError` for no more than k rows.
    """
    require_more_than(k, x_NF)
    # Each row is nearest to itself, at distance 0: the k-th other is the k + 1-th of all.
    return torch.cat([block.kthvalue(k + 1, dim=1).values for block in distances(x_NF, x_NF)])


def require_more_than(k: int, x_NF: Tensor) -> None:
    """Raise `ConfigError` for no more than k rows."""
    if len(x_NF) <= k:
        neighbours = f"the {k} nearest" if k else "the nearest"
        raise ConfigError(
            f"{neighbours} images need more than {k} images, not {len(x_NF)}; raise evaluation.num_images"
        )


@dataclass(frozen=True)
class NeighbourhoodMean(RunningMetric):
    """Mean over generated images of a number that depends on the real neighbourhoods around each.

    The neighbourhood of a real image reaches to its k-th nearest other one. Memory does not grow
    with the number of generated images.
    """

    k: ClassVar[int]
    names_extractor = True
    max_images = 10_000  # the cost is quadratic in this number
    added = ("total", "count")
    real_NF: Tensor
    radius_N: Tensor
    total: float = 0.0
    count: int = 0

    @staticmethod
    @abstractmethod
    def value_of_each(is_within_BN: Tensor) -> Tensor:
        """Return the numbers of B images (B,); is_within_BN: in whose neighbourhoods each lies."""

    @classmethod
    def from_reference(cls, real: SampleFeatures, options: Any = None) -> Self:
        """Return an empty metric with the radius around each real image."""
        real_NF = in_float64(real.features_BF)
        return cls(real_NF, radii(real_NF, cls.k))

    def update(self, samples: SampleFeatures) -> Self:
        """Return a metric that includes these images."""
        blocks = distances(in_float64(samples.features_BF), self.real_NF)
        total = sum(float(self.value_of_each(block <= self.radius_N).sum()) for block in blocks)
        return self.including(total=total, count=len(samples))

    def compute(self) -> float:
        """Return the mean. Raises `ConfigError` without images."""
        if not self.count:
            raise ConfigError(f"{self.name} needs at least 1 generated image; raise evaluation.num_images")
        return self.total / self.count
