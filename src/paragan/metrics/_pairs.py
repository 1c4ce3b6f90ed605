"""What metrics of pairs see: images that were made, each beside the one that it should have been."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from paragan.core.errors import ConfigError


@dataclass(frozen=True)
class ImagePairs:
    """Both x_BCHW in [-1, 1]; row i of one belongs to row i of the other."""

    made: Tensor
    target: Tensor

    def __len__(self) -> int:
        return len(self.made)

    def rows(self, first: int, end: int) -> ImagePairs:
        """Pairs first … end - 1."""
        return ImagePairs(self.made[first:end], self.target[first:end])


@dataclass(frozen=True)
class PairMean:
    """The mean over all pairs of a number that each has. A value: `update` and `merge` return the next one."""

    name: ClassVar[str]
    total: float = 0.0
    count: int = 0

    def update(self, pairs: ImagePairs) -> Self:
        made, target = (x.detach().cpu().double() for x in (pairs.made, pairs.target))
        return type(self)(self.total + float(self.of_each(made, target).sum()), self.count + len(pairs))

    def merge(self, other: Self) -> Self:
        return type(self)(self.total + other.total, self.count + other.count)

    def compute(self) -> float:
        if not self.count:
            raise ConfigError("score: found no pairs, expected at least one held-out pair")
        return self.total / self.count

    @staticmethod
    @abstractmethod
    def of_each(made_BCHW: Tensor, target_BCHW: Tensor) -> Tensor:
        """(B,), float64."""
