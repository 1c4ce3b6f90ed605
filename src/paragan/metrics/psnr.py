"""Peak signal-to-noise ratio to the target in dB, as the mean over images; higher is better.

10 log10(peak² / mse) with peak 2 for values in [-1, 1], which equals that of grey levels with peak
255.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paragan.core.metric import Direction
from paragan.metrics._mean import PairMean

MOST = 100.0  # dB, for equal images, because JSON has no infinity


@dataclass(frozen=True)
class Metric(PairMean):
    """Ratio in dB, at most 100 for one image."""

    name = "psnr"
    direction = Direction.HIGHER
    note = "Peak signal-to-noise ratio of generated against target images, in decibels."
    order = 1

    @staticmethod
    def compare(made_BCHW: Tensor, target_BCHW: Tensor) -> Tensor:
        """Return the ratio of each pair in dB, float64 (B,)."""
        mse_B = (made_BCHW - target_BCHW).square().flatten(1).mean(1)
        return 10 * (4 / mse_B).log10().clamp(max=MOST / 10)
