"""Peak signal-to-noise ratio to the target in dB, as the mean over images; higher is better.

10 log10(peak² / mse). The peak is the range of values: 2 for [-1, 1], which gives the ratio of grey
levels with peak 255.
"""

from dataclasses import dataclass

from torch import Tensor

from paragan.core.metric import Direction
from paragan.core.outputs import mean_per_sample
from paragan.metrics._options import RangeOptions as Options
from paragan.metrics.base.mean import RangeMetric

__all__ = ["Metric", "Options"]

MOST = 100.0  # dB, for equal images, because JSON has no infinity


@dataclass(frozen=True)
class Metric(RangeMetric):
    """Ratio in dB, at most 100 for one sample."""

    name = "psnr"
    direction = Direction.HIGHER
    note = "Peak signal-to-noise ratio of generated against target samples, in decibels."

    def compare(self, generated_B: Tensor, target_B: Tensor) -> Tensor:
        """Return the ratio of each pair in dB, float64 (B,)."""
        mse_B = mean_per_sample((generated_B - target_B).square())
        return 10 * (self.peak**2 / mse_B).log10().clamp(max=MOST / 10)
