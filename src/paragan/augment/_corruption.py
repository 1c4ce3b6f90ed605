"""Corruptions: gains of frequency bands, noise, cutout."""

from itertools import pairwise
from math import pi

import torch
from torch import Tensor

from paragan.augment._draws import Draws, per_image
from paragan.layers.warp import cosine_basis

_BANDS = ("band_0", "band_1", "band_2", "band_3")  # up to pi / 8 per pixel, pi / 4, pi / 2, pi
_POWER = (10 / 13, 1 / 13, 1 / 13, 1 / 13)  # share of a natural image in each band
_SLOPE = 4  # of the filters between bands: the share of a wave falls as frequency^-4
_HOLE = 1 / 2  # share of a side


def scale_bands(x_BCHW: Tensor, draws: Draws) -> Tensor:
    """Scale each frequency band by a random factor; the power of a natural image stays."""
    happens = {name: draws.happens(name) for name in _BANDS}
    factors = [torch.where(happens[name], draws[name], 1.0) for name in _BANDS]
    # one band after the other; each step restores the power
    quieter = torch.ones_like(factors[0])
    for factor, power in zip(factors, _POWER, strict=True):
        quieter = quieter / (1 + power * (factor.square() - 1)).sqrt()
    out = multiply_bands(x_BCHW, torch.stack(factors, 1) * quieter[:, None])
    # images without a change stay as they are: the transform and back rounds
    return torch.where(per_image(torch.stack([*happens.values()]).any(0)), out, x_BCHW)


def multiply_bands(x_BCHW: Tensor, gains_B4: Tensor) -> Tensor:
    """Scale the bands of images, mirrored at their border, by these factors, along either axis."""
    sides = x_BCHW.shape[2:]
    basis_H, basis_W = (cosine_basis(side, x_BCHW.dtype, x_BCHW.device) for side in sides)
    down_BH, right_BW = ((gains_B4[..., None] * _bands(side, gains_B4)).sum(1) for side in sides)
    waves = basis_H @ x_BCHW @ basis_W.mT
    waves = waves * down_BH[:, None, :, None] * right_BW[:, None, None, :]
    return basis_H.mT @ waves @ basis_W


def add_noise(x_BCHW: Tensor, draws: Draws) -> Tensor:
    """Add normal noise, whose deviation is half-normal."""
    deviation = torch.where(draws.happens("noise"), draws["noise"].abs(), 0.0)
    return x_BCHW + per_image(deviation) * draws.field("noise")


def cut_hole(x_BCHW: Tensor, draws: Draws) -> Tensor:
    """Set a rectangle of half of either side, around any centre in the image, to zero."""
    rows_BH = _near(draws["hole_y"], x_BCHW.shape[2], x_BCHW)
    columns_BW = _near(draws["hole_x"], x_BCHW.shape[3], x_BCHW)
    hole_BHW = rows_BH[:, :, None] & columns_BW[:, None, :] & draws.happens("hole")[:, None, None]
    return x_BCHW.masked_fill(hole_BHW[:, None], 0.0)


def _near(centre_B: Tensor, side: int, like: Tensor) -> Tensor:
    """Return which pixels of a side are in the hole around a centre in [0, 1), (B, side)."""
    middles = (torch.arange(side, dtype=like.dtype, device=like.device) + 0.5) / side
    return (middles - centre_B[:, None]).abs() < _HOLE / 2


def _bands(length: int, like: Tensor) -> Tensor:
    """Return the share of each band in each cosine wave, (4, length); columns sum to 1."""
    waves = torch.arange(length, dtype=like.dtype, device=like.device) * (pi / length)
    below = [1 / (1 + (waves / (pi / octave)) ** _SLOPE) for octave in (8, 4, 2)]
    edges = [torch.zeros_like(waves), *below, torch.ones_like(waves)]
    return torch.stack([upper - lower for lower, upper in pairwise(edges)])
