"""Metrics that are the mean of a value per image, or per pair of generated and target image."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import ImagePairs, Metric, Needs, in_float64


@dataclass(frozen=True)
class MeanMetric(Metric):
    """Mean of a value per image."""

    total: float = 0.0
    count: int = 0

    @classmethod
    def from_reference(cls, real: Any = None, options: Any = None) -> Self:
        """Return an empty metric; the reference is not used."""
        return cls()

    def update(self, samples: Any) -> Self:
        """Return a metric that includes these images."""
        total = self.total + float(self.of_each(samples).sum())
        return replace(self, total=total, count=self.count + len(samples))

    def merge(self, other: Self) -> Self:
        """Return a metric that includes the images of both."""
        return replace(self, total=self.total + other.total, count=self.count + other.count)

    def compute(self) -> float:
        """Return the mean over all images. Raises `ConfigError` without images."""
        if not self.count:
            raise ConfigError(f"score: {self.name} has no images to compare; use data with at least one held-out image")
        return self.total / self.count

    @abstractmethod
    def of_each(self, samples: Any) -> Tensor:
        """Return the value of each image, float64 (B,)."""


@dataclass(frozen=True)
class PairMean(MeanMetric):
    """Mean of a value per pair."""

    needs = frozenset({Needs.PAIRS})
    reference = "held_out"

    def of_each(self, samples: ImagePairs) -> Tensor:
        """Return the value of each pair, float64 (B,)."""
        return self.compare(in_float64(samples.made), in_float64(samples.target))

    @staticmethod
    @abstractmethod
    def compare(made_BCHW: Tensor, target_BCHW: Tensor) -> Tensor:
        """Return the value of each pair, float64 (B,)."""
