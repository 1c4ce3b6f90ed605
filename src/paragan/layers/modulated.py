"""Modulated convolutions of StyleGAN2 (Karras et al. 2020, section 2.2, equations 1 and 3).

Scaling a convolution's weights along their inputs is scaling its inputs, and dividing them by the
norm of each output's weights is dividing its outputs: all images share one convolution with plain
weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.layers.blocks import fill_normal
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.resample import blur

_EPS = 1e-8
_UP = 4.0  # three of four pixels are zeros before the blur


class ModulatedConv2d(nn.Module):
    """Convolution of (B, inputs, H, W), modulated by styles (B, inputs) and demodulated.

    Weights are N(0, 1): demodulation makes their scale irrelevant. up: a transposed convolution of
    stride two, then a blur, to (B, outputs, 2H, 2W).
    """

    fill = fill_normal

    def __init__(self, inputs: int, outputs: int, size: int = 3, up: bool = False) -> None:
        super().__init__()
        self.up = up
        self.weight = nn.Parameter(torch.randn(outputs, inputs, size, size))

    def forward(self, x: Tensor, style_BI: Tensor, gain: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return the map and a factor (B, outputs, 1, 1) to apply next, which fuses with a bias."""
        with autocast_off(style_BI):
            style_BI = at_least_float32(style_BI)
            energy_OI = self.weight.to(style_BI.dtype).square().sum((2, 3))
            scale = gain * (_UP if self.up else 1.0)
            norm_BO = F.linear(style_BI.square(), energy_OI).add(_EPS).rsqrt() * scale
        y = conv(x * style_BI.to(x.dtype)[:, :, None, None], self.weight, self.up)
        return y, norm_BO[:, :, None, None].to(y.dtype)


def conv(x: Tensor, weight: Tensor, up: bool) -> Tensor:
    """Convolve at the same size; up: at twice the size, with a quarter of the right value."""
    if up:
        return blur(F.conv_transpose2d(x, weight.transpose(0, 1), stride=2), 1, 1)
    return F.conv2d(x, weight, padding=weight.shape[-1] // 2)
