"""A 3x3 convolution next to a resampling by two, as one 4x4 convolution of stride two.

Doubling (nearest) before, or averaging 2x2 after, a 3x3 convolution makes neighbouring taps read the same pixel or
add to the same one. Adding those taps first gives the same function with 16 instead of 36 products per pixel of the
smaller image, and without the large intermediate one. Weights have their usual shape (out, in, 3, 3), so spectral
norm, initialisation and checkpoints work as with a plain convolution.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.layers.precision import autocast_off


class UpConv2d(nn.Conv2d):
    """Layer equal to `conv3x3(F.interpolate(x, scale_factor=2))`: (B, in, H, W) to (B, out, 2H, 2W)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=bias)

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # a transposed convolution reads its taps backwards
        taps = _spread_taps(weight, _taps(weight).flip(0))
        return F.conv_transpose2d(x, taps.transpose(0, 1), bias, stride=2, padding=1)


class DownConv2d(nn.Conv2d):
    """Layer equal to `F.avg_pool2d(conv3x3(x), 2)`: (B, in, 2H, 2W) to (B, out, H, W)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.conv2d(x, _spread_taps(weight, _taps(weight) / 2), bias, stride=2, padding=1)  # 2: mean per axis


def upsample(x: Tensor) -> Tensor:
    """Double the resolution of (B, C, H, W), bilinear; beyond the border are zeros, as in StyleGAN2's code.

    It is four times the transpose of `blur(x, 1, 1, stride=2)`.
    """
    return F.interpolate(F.pad(x, (1, 1, 1, 1)), scale_factor=2, mode="bilinear")[..., 2:-2, 2:-2]


def blur(x: Tensor, before: int, after: int, stride: int = 1) -> Tensor:
    """Filter (B, C, H, W) by (1, 3, 3, 1) / 8 along both axes, after padding with zeros.

    A side becomes (side + before + after - 4) // stride + 1. StyleGAN2 filters so around changes of
    resolution (Karras et al. 2020, appendix B).
    """
    x = F.pad(x, (before, after, before, after))
    return F.avg_pool2d(F.avg_pool2d(F.avg_pool2d(x, 2, 1), 2, 1), 2, stride)  # operations with second derivatives


def _taps(like: Tensor) -> Tensor:
    """Return (3, 4) weights that add each of three taps to two of four: same index and next.

    It is created on the device: a constant would have to be copied.
    """
    return torch.ones(3, 4, dtype=like.dtype, device=like.device).triu().tril(1)


def _spread_taps(weight: Tensor, taps: Tensor) -> Tensor:
    """Map weights (out, in, 3, 3) to (out, in, 4, 4).

    One matrix product: slices and sums take thirty times as long.
    """
    with autocast_off(weight):  # sums of weights are not rounded; autocast rounds the result once
        return (weight.flatten(2) @ torch.kron(taps, taps)).unflatten(2, (4, 4))
