"""Variance within a class, generated over real, minimum over classes; 1 is as varied as real."""

from dataclasses import dataclass

from paragan.core.metric import Direction
from paragan.metrics._class_variance import VarianceRatio


@dataclass(frozen=True)
class Metric(VarianceRatio):
    """Minimum ratio over the classes, >= 0."""

    name = "class_variance_min"
    direction = Direction.NEITHER
    note = (
        "Least diverse class; 1 equals the diversity of real images. Ratio of the feature "
        "variance of generated images to that of real ones in that class. Near 0: it has "
        "collapsed."
    )

    def compute(self) -> float:
        """Return the minimum ratio."""
        return float(self.ratios.min())
