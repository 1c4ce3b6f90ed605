"""Pairs of generated and target images, the input of paired metrics."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from paragan.core.errors import ConfigError


@dataclass(frozen=True)
class ImagePairs:
    """Generated and target images, both x_BCHW in [-1, 1]; row i of one belongs to row i of the other."""

    made: Tensor
    target: Tensor

    def __len__(self) -> int:
        return len(self.made)

    def rows(self, first: int, end: int) -> ImagePairs:
        """Pairs first … end - 1."""
        return ImagePairs(self.made[first:end], self.target[first:end])


@dataclass(frozen=True)
class PairMean:
    """The mean of a value per pair. Immutable: `update` and `merge` return a new metric."""

    name: ClassVar[str]
    total: float = 0.0
    count: int = 0

    def update(self, pairs: ImagePairs) -> Self:
        """Return a metric that includes these images."""
        made, target = (x.detach().cpu().double() for x in (pairs.made, pairs.target))
        return type(self)(self.total + float(self.of_each(made, target).sum()), self.count + len(pairs))

    def merge(self, other: Self) -> Self:
        """Return a metric that includes the images of both."""
        return type(self)(self.total + other.total, self.count + other.count)

    def compute(self) -> float:
        """The value of the metric."""
        if not self.count:
            raise ConfigError("score: there are no held-out pairs; use data with at least one")
        return self.total / self.count

    @staticmethod
    @abstractmethod
    def of_each(made_BCHW: Tensor, target_BCHW: Tensor) -> Tensor:
        """The value of each pair: (B,), float64."""
