"""Variance within a class, generated over real, mean over classes; 1 is as varied as real."""

from dataclasses import dataclass

from paragan.core.metric import Direction
from paragan.metrics._class_variance import VarianceRatio


@dataclass(frozen=True)
class Metric(VarianceRatio):
    """Mean ratio over the classes, >= 0."""

    name = "class_variance_mean"
    direction = Direction.NEITHER
    note = (
        "Mean over classes; 1 equals the diversity of real images. Ratio of the feature variance "
        "of generated images to that of real ones."
    )

    def compute(self) -> float:
        """Return the mean ratio."""
        return float(self.ratios.mean())
