"""Differentiable augmentation of all inputs of D against overfitting (Zhao et al. 2020).

"Differentiable Augmentation for Data-Efficient GAN Training", sections 3.2 and 4. Colour: brightness by up to ±0.5,
saturation 0 to 2 times, contrast 0.5 to 1.5 times. Translation: by up to an eighth of the side, the rest zero. Cutout:
a square of half the side is zero. Every image has separate draws.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.types import Rows
from paragan.layers.shift import is_inside, shift_images


@dataclass(frozen=True)
class Options:
    """Transforms to apply, in this order."""

    color: bool = True
    """Random brightness, saturation and contrast."""
    translation: bool = True
    """Random shift by up to an eighth of the side."""
    cutout: bool = True
    """A random square of half the side is set to zero."""


class Augment:
    """DiffAugment of images; draws depend on (seed, stream, row) alone, so ranks agree."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, x_BCHW: Tensor, seed: int, stream: str, rows: Rows) -> Tensor:
        if x_BCHW.dim() != 4:
            raise ConfigError(
                f"augment needs images, but samples have shape {tuple(x_BCHW.shape[1:])}; leave augment out"
            )
        draws_BK = rng.uniform(seed, stream, rows, (7,)).to(x_BCHW.device, non_blocking=True)
        if self.options.color:
            x_BCHW = _jitter_colours(x_BCHW, draws_BK[:, :3].to(x_BCHW.dtype))  # the others become whole pixels
        if self.options.translation:
            x_BCHW = shift_images(x_BCHW, draws_BK[:, 3:5])
        if self.options.cutout:
            x_BCHW = x_BCHW * _outside_a_hole(x_BCHW, draws_BK[:, 5:])
        return x_BCHW


def _jitter_colours(x_BCHW: Tensor, draws_B3: Tensor) -> Tensor:
    """Change brightness, saturation and contrast by uniform draws in [0, 1)."""
    brightness, saturation, contrast = (draw.view(-1, 1, 1, 1) for draw in draws_B3.unbind(1))
    x = x_BCHW + (brightness - 0.5)
    grey = x.mean(1, keepdim=True)
    x = grey + (x - grey) * (2 * saturation)
    level = x.mean((1, 2, 3), keepdim=True)
    return level + (x - level) * (contrast + 0.5)


def _outside_a_hole(x_BCHW: Tensor, draws_B2: Tensor) -> Tensor:
    """Return (B, 1, H, W): 0 in a square at a random centre, which may cross the edge, else 1."""
    height, width = x_BCHW.shape[2:]
    tall = (height + 1) // 2
    wide = (width + 1) // 2
    # as in the authors' code: a hole of even side has height + 1 centres, between pixels, and another one height
    top_B = (draws_B2[:, 0] * (height + 1 - tall % 2)).long() - tall // 2
    left_B = (draws_B2[:, 1] * (width + 1 - wide % 2)).long() - wide // 2
    rows_BH = torch.arange(height, device=x_BCHW.device) - top_B[:, None]
    columns_BW = torch.arange(width, device=x_BCHW.device) - left_B[:, None]
    hole_BHW = is_inside(rows_BH, tall)[:, :, None] & is_inside(columns_BW, wide)[:, None, :]
    return (~hole_BHW)[:, None].to(x_BCHW.dtype)
