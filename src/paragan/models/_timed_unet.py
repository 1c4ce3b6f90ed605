"""U-Net whose norms are modulated by time and class (Ho et al. 2020, DDPM), without attention, on patches."""

from __future__ import annotations

from itertools import pairwise
from math import gcd, log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.layers.blocks import fill_zero
from paragan.layers.conditional_norm import check_labels
from paragan.models._checks import image_side
from paragan.models._options import UNetOptions

_WAVES = 32  # of the time, as sines and cosines
_SLOWEST = 1000
_PATCH = 2  # side of the squares of pixels that are one position of the largest map


class Encoder(nn.Module):
    """Image, class and time to the map of each resolution, that of the middle block and the embedding."""

    def __init__(self, options: UNetOptions, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        widths = _widths(options)
        self.map_shapes = _map_shapes(options, image_side(shape, "flow_unet", 512))
        _check_bottleneck(options, shape[0])
        embed = options.embed
        self.time = nn.Sequential(nn.Linear(2 * _WAVES, embed), nn.SiLU(), nn.Linear(embed, embed))
        self.label = nn.Embedding(classes, embed) if classes else None
        self.first = nn.Conv2d(shape[0] * _PATCH**2, widths[0], 3, padding=1)
        levels = pairwise((widths[0], *widths))
        self.levels = nn.ModuleList([_level(a, b, options) for a, b in levels])
        self.middle = ModulatedResidual(widths[-1], widths[-1], embed)

    def forward(self, x: Tensor, y_B: Tensor | None, t_B: Tensor) -> list[Tensor]:
        embedding = self.time(_waves(t_B))
        if self.label is not None:
            embedding = embedding + self.label(check_labels(y_B, len(x)))
        embedding = F.silu(embedding)
        h = self.first(F.pixel_unshuffle(x, _PATCH))
        maps = []
        for number, level in enumerate(self.levels):
            if number:
                h = F.avg_pool2d(h, 2)
            for block in level.children():
                h = block(h, embedding)
            maps.append(h)
        return [*maps, self.middle(h, embedding), embedding]


class Decoder(nn.Module):
    """The maps of an encoder and its embedding to an image."""

    def __init__(self, options: UNetOptions, channels: int) -> None:
        super().__init__()
        widths = _widths(options)[::-1]
        levels = pairwise((widths[0], *widths))
        self.levels = nn.ModuleList([_level(a + b, b, options) for a, b in levels])
        self.norm = _norm(widths[-1])
        self.last = ZeroConv2d(widths[-1], channels * _PATCH**2, 3, padding=1)

    def forward(self, maps: list[Tensor], embedding: Tensor) -> Tensor:
        *skips, h = maps
        for number, level in enumerate(self.levels):
            if number:
                h = F.interpolate(h, scale_factor=2)
            h = torch.cat([h, skips.pop()], 1)
            for block in level.children():
                h = block(h, embedding)
        return F.pixel_shuffle(self.last(F.silu(self.norm(h))), _PATCH)


class ModulatedResidual(nn.Module):
    """Group norm, swish, 3x3, twice, added to the input; the second norm is scaled and shifted by the embedding."""

    def __init__(self, inputs: int, outputs: int, embed: int) -> None:
        super().__init__()
        self.norm1 = _norm(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.modulate = nn.Linear(embed, 2 * outputs)
        self.norm2 = _norm(outputs)
        self.conv2 = ZeroConv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.modulate(embedding)[:, :, None, None].chunk(2, 1)
        h = self.conv2(F.silu(self.norm2(h) * (1 + scale) + shift))
        return self.shortcut(x) + h


class ZeroConv2d(nn.Conv2d):
    """Convolution that starts at 0."""

    fill = fill_zero


def _widths(options: UNetOptions) -> list[int]:
    return [options.width * times for times in options.multiples]


def _level(inputs: int, width: int, options: UNetOptions) -> nn.ModuleList:
    channels = pairwise((inputs, *[width] * options.blocks))
    return nn.ModuleList([ModulatedResidual(a, b, options.embed) for a, b in channels])


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(gcd(8, channels), channels)


def _waves(t_B: Tensor) -> Tensor:
    """Return sines and cosines of the time, of wavelengths in a geometric series (Vaswani et al. 2017)."""
    exponents = torch.arange(_WAVES, dtype=t_B.dtype, device=t_B.device) / _WAVES
    angles = t_B[:, None] * _SLOWEST * torch.exp(-log(_SLOWEST) * exponents)
    return torch.cat([angles.cos(), angles.sin()], 1)


def _check_bottleneck(options: UNetOptions, channels: int) -> None:
    """Refuse a largest map of too few channels: the noise of all pixels is a part of the velocity, and passes there."""
    width = _widths(options)[0]
    needed = channels * _PATCH**2
    if width < needed:
        raise ConfigError(
            f"model.width: a patch of {_PATCH} x {_PATCH} pixels has {needed} numbers, "
            f"and a map of {width} channels cannot pass them on; give {needed} or more"
        )


def _map_shapes(options: UNetOptions, side: int) -> list[tuple[int, int]]:
    """Return channels and side of each map, that of the middle block last; `ConfigError` for a side in between."""
    widths = _widths(options)
    factor = _PATCH << (len(widths) - 1)
    if side % factor:
        raise ConfigError(
            f"model.multiples: {len(widths)} maps of patches of {_PATCH} need a side that is a multiple of "
            f"{factor}, not {side}; give fewer multiples"
        )
    shapes = [(width, side // _PATCH >> level) for level, width in enumerate(widths)]
    return [*shapes, shapes[-1]]
