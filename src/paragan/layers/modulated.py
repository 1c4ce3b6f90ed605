"""Convolutions whose weights are scaled by a style, image by image (Karras et al. 2020, "Analyzing and improving the
image quality of StyleGAN", section 2.2, equations 1 and 3).

Scaling a convolution's weights along their inputs is scaling its inputs, and dividing them by the
norm of each output's weights is dividing its outputs: all images share one convolution with plain
weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from paragan.layers.blur import blur
from paragan.layers.precision import at_least_float32, autocast_off

_EPS = 1e-8
_UP = 4.0  # three of four pixels are zeros before the blur


class ModulatedConv2d(nn.Module):
    """(B, inputs, H, W) and styles (B, inputs) to (B, outputs, H, W); up: to (B, outputs, 2H, 2W).

    Weights are N(0, 1): the division makes their size irrelevant. up: pixels, with zeros between
    them, are convolved and blurred; of the two only the blur sees the larger map whole.
    """

    def __init__(self, inputs: int, outputs: int, size: int = 3, up: bool = False) -> None:
        super().__init__()
        self.up = up
        self.weight = nn.Parameter(torch.randn(outputs, inputs, size, size))

    def fill(self, role: str, tensor: Tensor, generator: Generator) -> None:
        tensor.normal_(generator=generator)

    def forward(self, x: Tensor, style_BI: Tensor, gain: float = 1.0) -> tuple[Tensor, Tensor]:
        """The convolved map and what it is still to be multiplied by, (B, outputs, 1, 1): it goes well with a bias."""
        with autocast_off(style_BI):
            style_BI = at_least_float32(style_BI)
            energy_OI = self.weight.to(style_BI.dtype).square().sum((2, 3))
            norm_BO = F.linear(style_BI.square(), energy_OI).add(_EPS).rsqrt() * (gain * (_UP if self.up else 1.0))
        y = conv(x * style_BI.to(x.dtype)[:, :, None, None], self.weight, self.up)
        return y, norm_BO[:, :, None, None].to(y.dtype)


def conv(x: Tensor, weight: Tensor, up: bool) -> Tensor:
    """Same size; up: twice the size, a quarter as bright as it should be."""
    if up:
        return blur(F.conv_transpose2d(x, weight.transpose(0, 1), stride=2), 1, 1)
    return F.conv2d(x, weight, padding=weight.shape[-1] // 2)
