"""Variance of the features within a class, generated over real, on average over the classes; 1 is as varied as real."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paragan.metrics._class_variance import VarianceRatio


@dataclass(frozen=True)
class Metric(VarianceRatio):
    """class_variance_mean: the mean ratio over the classes, >= 0."""

    name: ClassVar[str] = "class_variance_mean"

    def compute(self) -> float:
        """The value of the metric."""
        return float(self.ratios.mean())
