"""Colour transforms: brightness, contrast, inverted luma, hue, saturation."""

from __future__ import annotations

import torch
from torch import Tensor

from paragan.augment._draws import Draws, per_image

_NAMES = ("brightness", "contrast", "luma", "hue", "saturation")


def coloured(x_BCHW: Tensor, draws: Draws) -> Tensor:
    """Apply one random affine map to the colours of each image.

    Grey is the mean of the channels, colour the difference from it. Brightness and contrast change
    both, the luma flip grey alone, saturation and hue colour alone. One channel has only the first
    three, and hue needs three channels.
    """
    happens = {name: draws.happens(name) for name in _NAMES}
    brightness = torch.where(happens["brightness"], draws["brightness"], 0.0)
    contrast = torch.where(happens["contrast"], draws["contrast"], 1.0)
    saturation = torch.where(happens["saturation"], draws["saturation"], 1.0)
    grey = torch.where(happens["luma"] & (draws["luma"] < 0.5), -contrast, contrast)
    cos = torch.where(happens["hue"], draws["hue cos"], 1.0)
    sin = torch.where(happens["hue"], draws["hue sin"], 0.0)
    values = (grey, contrast * saturation, cos, sin)
    map_BCC = _map(x_BCHW, *(value[:, None, None] for value in values))
    out = (map_BCC @ x_BCHW.flatten(2)).view_as(x_BCHW) + per_image(grey * brightness)
    return torch.where(per_image(torch.stack(list(happens.values())).any(0)), out, x_BCHW)


def _map(x_BCHW: Tensor, grey: Tensor, colour: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the colour map (B, C, C): scales grey; scales colour and turns it around (1, 1, 1)."""
    channels = x_BCHW.shape[1]
    same = torch.eye(channels, dtype=x_BCHW.dtype, device=x_BCHW.device)
    mean = torch.full_like(same, 1 / channels)
    turned = same - mean
    if channels == 3:
        # the cross product with (1, 1, 1) / sqrt(3)
        across = (same.roll(1, 0) - same.roll(-1, 0)) / 3**0.5
        turned = cos * turned + sin * across
    return grey * mean + colour * turned
