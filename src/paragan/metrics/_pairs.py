"""Metrics of pairs of generated and target images."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import ImagePairs, Metric, Needs, in_float64


@dataclass(frozen=True)
class PairMean(Metric):
    """Mean of a value per pair."""

    needs = frozenset({Needs.PAIRS})
    reference = "held_out"
    total: float = 0.0
    count: int = 0

    @classmethod
    def from_reference(cls, real: Any = None, options: Any = None) -> Self:
        """Return an empty metric; every pair has its target."""
        return cls()

    def update(self, samples: ImagePairs) -> Self:
        """Return a metric that includes these images."""
        made = in_float64(samples.made)
        target = in_float64(samples.target)
        return type(self)(self.total + float(self.of_each(made, target).sum()), self.count + len(samples))

    def merge(self, other: Self) -> Self:
        """Return a metric that includes the images of both."""
        return type(self)(self.total + other.total, self.count + other.count)

    def compute(self) -> float:
        """Return the mean over all pairs. Raises `ConfigError` without pairs."""
        if not self.count:
            raise ConfigError("score: there are no held-out pairs; use data with at least one")
        return self.total / self.count

    @staticmethod
    @abstractmethod
    def of_each(made_BCHW: Tensor, target_BCHW: Tensor) -> Tensor:
        """Return the value of each pair, float64 (B,)."""
