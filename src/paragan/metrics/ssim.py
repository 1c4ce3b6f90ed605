"""Structural similarity to the target, as the mean over images; higher is better, 1 is equal.

Source: Z. Wang et al., "Image quality assessment: from error visibility to structural similarity", IEEE TIP 2004,
equation 13 with the settings of section III.C: a Gaussian window of 11x11 pixels, sigma 1.5, K1 = 0.01, K2 = 0.03, only
at places where the window is within the image. The paper uses luminance; here the mean over the channels is taken.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.metric import Direction, Needs
from paragan.metrics._options import RangeOptions as Options
from paragan.metrics.base.mean import RangeMetric

__all__ = ["Metric", "Options"]

_WINDOW = 11
_SIGMA = 1.5
_K1 = 0.01
_K2 = 0.03


@dataclass(frozen=True)
class Metric(RangeMetric):
    """Similarity in [-1, 1]. Images smaller than the window use the middle of the window."""

    name = "ssim"
    direction = Direction.HIGHER
    note = "Structural similarity of generated and target images; 1 for equal images."
    needs = frozenset({Needs.PAIRS, Needs.IMAGES})

    def compare(self, generated_B: Tensor, target_B: Tensor) -> Tensor:
        """Return the similarity of each pair of images, float64 (B,)."""
        # from 0 to the peak: means of values around 0 would have no meaning
        x = generated_B - self.low
        y = target_B - self.low
        c1 = (_K1 * self.peak) ** 2
        c2 = (_K2 * self.peak) ** 2
        mean_x = _smooth(x)
        mean_y = _smooth(y)
        var_x = _smooth(x * x) - mean_x**2
        var_y = _smooth(y * y) - mean_y**2
        covariance = _smooth(x * y) - mean_x * mean_y
        brightness = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
        structure = (2 * covariance + c2) / (var_x + var_y + c2)
        return (brightness * structure).flatten(1).mean(1)


def _smooth(x_BCHW: Tensor) -> Tensor:
    """Compute weighted means under the window by two matrices, 3 times as fast as convolutions."""
    over_rows, over_columns = (_means(side).to(x_BCHW) for side in x_BCHW.shape[2:])
    return over_rows @ x_BCHW @ over_columns.T


def _means(side: int) -> Tensor:
    """Return the window at each place along an axis, (places, side)."""
    length = min(_WINDOW, (side - 1) // 2 * 2 + 1)
    offsets = torch.arange(length, dtype=torch.float64) - length // 2
    weights = (-(offsets**2) / (2 * _SIGMA**2)).exp()
    pixels = torch.eye(side, dtype=torch.float64).unsqueeze(1)
    return F.conv1d(pixels, (weights / weights.sum()).view(1, 1, -1)).squeeze(1).T
