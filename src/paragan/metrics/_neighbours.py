"""Neighbours among rows of features, in blocks that bound the memory.

Distances by products, |a|^2 + |b|^2 - 2 a b, take a twentieth of the time of differences, and round. So they only rule
out: a distance that decides, or is returned, is computed from the difference, and equal rows have the distance 0.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import SampleFeatures, in_float64
from paragan.metrics.base.running import RunningMetric

_DISTANCES_AT_ONCE = 1 << 22
_EXACT_PER_ROW = 16  # where more are needed, as among equal rows, all of a block are computed


class _Block(NamedTuple):
    """Rows of a set against all of another. squared_nM: squared distances, at most `error_n1` from the exact ones."""

    rows_nF: Tensor
    b_MF: Tensor
    squared_nM: Tensor
    error_n1: Tensor

    def exact(self, is_needed_nM: Tensor) -> Tensor:
        """Return the distances, not squared, that are needed, from differences, (n, M); others may be NaN."""
        row, column = is_needed_nM.nonzero(as_tuple=True)
        if len(row) > _EXACT_PER_ROW * len(self.rows_nF):
            return _by_differences(self.rows_nF, self.b_MF)
        exact_nM = torch.full_like(self.squared_nM, torch.nan)
        exact_nM[row, column] = _by_differences(self.rows_nF[row, None], self.b_MF[column, None]).flatten()
        return exact_nM


def _blocks(a_NF: Tensor, b_MF: Tensor) -> Iterator[_Block]:
    square_M = b_MF.square().sum(1)
    for rows_nF in a_NF.split(max(1, _DISTANCES_AT_ONCE // max(1, len(b_MF)))):
        square_n1 = rows_nF.square().sum(1, keepdim=True)
        squared_nM = torch.addmm(square_n1 + square_M, rows_nF, b_MF.T, alpha=-2)
        # a bound on the rounding of sums of F products (Higham 2002, section 3.1), with a factor of 4
        bound = 4 * (b_MF.shape[1] + 8) * torch.finfo(b_MF.dtype).eps
        yield _Block(rows_nF, b_MF, squared_nM, bound * (square_n1 + square_M.amax()))


def _by_differences(a_NF: Tensor, b_MF: Tensor) -> Tensor:
    return torch.cdist(a_NF, b_MF, compute_mode="donot_use_mm_for_euclid_dist")


def within(a_NF: Tensor, b_MF: Tensor, radius_M: Tensor) -> Iterator[Tensor]:
    """Yield blocks (n, M), in order of `a_NF`: whether the distance to a row of `b_MF` is at most its radius."""
    square_M = radius_M.square()
    for block in _blocks(a_NF, b_MF):
        is_close_nM = ~((block.squared_nM - square_M).abs() > block.error_n1)  # also NaN, of what is not finite
        is_within_nM = block.squared_nM <= square_M
        if is_close_nM.any():
            is_within_nM = torch.where(is_close_nM, block.exact(is_close_nM) <= radius_M, is_within_nM)
        yield is_within_nM


def nearest(a_NF: Tensor, b_MF: Tensor) -> Tensor:
    """Return the distance of each row of `a_NF` to its nearest row of `b_MF`, (N,)."""
    return _distance_of_rank(1, a_NF, b_MF)


def radii(x_NF: Tensor, k: int) -> Tensor:
    """Return the distance of each row to its k-th nearest other row, (N,).

    Raises `ConfigError` for no more than k rows.
    """
    require_more_than(k, x_NF)
    # Each row is nearest to itself, at distance 0: the k-th other is the k + 1-th of all.
    return _distance_of_rank(k + 1, x_NF, x_NF)


def _distance_of_rank(k: int, a_NF: Tensor, b_MF: Tensor) -> Tensor:
    """Return the k-th smallest distance of each row of `a_NF` to the rows of `b_MF`, (N,)."""
    distances = []
    for block in _blocks(a_NF, b_MF):
        # the error of the k-th smallest, and that of a distance that it is compared with
        bound_n1 = block.squared_nM.kthvalue(k, dim=1, keepdim=True).values + 2 * block.error_n1
        # `kthvalue` takes NaN, of distances that are not needed, for the largest
        distances.append(block.exact(~(block.squared_nM > bound_n1)).kthvalue(k, dim=1).values)
    return torch.cat(distances)


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
        blocks = within(in_float64(samples.features_BF), self.real_NF, self.radius_N)
        total = sum(float(self.value_of_each(is_within_BN).sum()) for is_within_BN in blocks)
        return self.including(total=total, count=len(samples))

    def compute(self) -> float:
        """Return the mean. Raises `ConfigError` without images."""
        if not self.count:
            raise ConfigError(f"{self.name} needs at least 1 generated image; raise evaluation.num_images")
        return self.total / self.count
