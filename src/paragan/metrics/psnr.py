"""Peak signal-to-noise ratio to the target in dB, on average over the images; higher is better.

10 log10(peak² / mse) with the peak 2 of values in [-1, 1]: the same number as of grey levels with the peak 255.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paragan.core.metric import Direction
from paragan.metrics._pairs import PairMean

MOST = 100.0  # dB, for equal images, because JSON has no infinity


@dataclass(frozen=True)
class Metric(PairMean):
    """psnr, at most 100 dB for one image."""

    name = "psnr"
    direction = Direction.HIGHER
    note = "Peak signal-to-noise ratio of generated against target images, in decibels."
    order = 1

    @staticmethod
    def of_each(made_BCHW: Tensor, target_BCHW: Tensor) -> Tensor:
        """psnr of each image: (B,), float64."""
        mse_B = (made_BCHW - target_BCHW).square().flatten(1).mean(1)
        return 10 * (4 / mse_B).log10().clamp(max=MOST / 10)
