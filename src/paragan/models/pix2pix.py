"""U-Net and PatchGAN for image to image (pix2pix, Isola et al. 2017).

At 256 px the defaults are the paper's: G with 54,413,955 parameters in eight halvings, D with 2,768,705 and logits of
70x70 pixels each. Dropout is on the 512 -> 512 layers that follow the innermost, at most three, as in the authors'
second code (one layer further in in their first). The generator has no latent: its noise is the dropout.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import DataError
from paragan.core.option_types import Count, Fraction
from paragan.core.outputs import DiscriminatorOutput
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.blocks import run_blocks
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.random import Dropout
from paragan.layers.strided_conv import DownConv4x4, UpConv4x4
from paragan.models._checks import map_sizes
from paragan.models._options import WeightInit

MIN_PATCHED = 3  # shorter side of the map that the last two layers of PatchGAN need


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes and norm of the U-Net and of PatchGAN."""

    width: Count = 64
    """Channels of the first layer of both networks, doubled at each halving up to 8 times."""
    norm: Literal["batch", "instance"] = "batch"
    """Norm of both networks: `batch` is the paper's; `instance` never mixes samples.

    At batch size 1 both are the same, except in evaluation with running statistics; batch norm
    blurs with larger batches. Both have gain and bias.
    """
    dropout: Fraction = 0.5
    """Probability of dropout in G, its only noise."""
    weight_init: WeightInit = "normal_0.02"
    """Scheme of the initial weights; `torch` leaves the layers' defaults."""


class Generator(nn.Module):
    """U-Net: a condition (B, C', H, W) in [-1, 1] to x_BCHW of its size; ignores z_BZ and labels.

    condition_channels: C'; None: C.

    Its blocks pass a tuple of the maps so far; the way up concatenates them.
    """

    latent = 0  # no z: it is called with the images of a batch
    num_classes = 0
    takes_condition = True

    def __init__(
        self, options: Options, shape: tuple[int, int, int], num_classes: int = 0, condition_channels: int | None = None
    ) -> None:
        super().__init__()
        self.weight_init = options.weight_init
        map_sizes(shape)  # refuses other sizes
        side = gcd(shape[1], shape[2])
        levels = (side & -side).bit_length() - 1  # halvings until a side is uneven: 1 or 3 px of most squares
        self.input_multiple = 2**levels  # to which `apply` pads images
        widths = _widths(options.width, levels)
        norm = _norm(options.norm)
        downs = []
        for i, (a, b) in enumerate(pairwise((condition_channels or shape[0], *widths))):
            has_norm = 0 < i < levels - 1  # the innermost map may be one pixel, equal to its mean
            downs.append(EncoderBlock(a, b, norm(b) if has_norm else None, first=i == 0))
        ups = []
        for i, (a, b) in enumerate(pairwise(widths[::-1])):
            dropout = options.dropout if 1 <= i <= 3 and b == 8 * options.width else 0.0
            ups.append(DecoderBlock(a if i == 0 else 2 * a, b, norm(b), dropout, first=i == 0))
        self.blocks = nn.ModuleList([*downs, *ups, DecoderOutput(2 * widths[0], shape[0])])

    def forward(self, z_BZ: Tensor | None, y_B: Tensor | None = None, condition: Tensor | None = None) -> Tensor:
        return run_blocks(self.blocks, (_required(condition),))


class Discriminator(nn.Module):
    """PatchGAN: x_BCHW and its condition to logits (B, h, w), one per patch, and the last map."""

    takes_condition = True

    def __init__(
        self, options: Options, shape: tuple[int, int, int], num_classes: int = 0, condition_channels: int | None = None
    ) -> None:
        super().__init__()
        self.weight_init = options.weight_init
        # more halvings would leave too small a map
        halvings = min(3, map_sizes(shape).doublings)
        channels = shape[0] + (condition_channels or shape[0])
        self.blocks = nn.ModuleList(patch_layers(channels, options.width, halvings, _norm(options.norm)))

    def forward(
        self, x_BCHW: Tensor, y_B: Tensor | None = None, condition: Tensor | None = None
    ) -> DiscriminatorOutput:
        both = torch.cat([_required(condition), x_BCHW], 1)
        return DiscriminatorOutput.of(run_blocks(self.blocks, both))


class EncoderBlock(nn.Module):
    """4x4 convolution of stride two, norm, leaky ReLU 0.2, of the newest map."""

    def __init__(self, inputs: int, outputs: int, norm: nn.Module | None, first: bool) -> None:
        super().__init__()
        self.first = first
        self.conv = DownConv4x4(inputs, outputs)
        self.norm = norm

    def forward(self, maps: tuple[Tensor, ...], y_B: Tensor | None = None) -> tuple[Tensor, ...]:
        h = self.conv(maps[-1])
        h = F.leaky_relu(h if self.norm is None else self.norm(h), 0.2, inplace=True)
        # The image is not concatenated; activated maps serve as well as raw ones, a ReLU follows.
        return (h,) if self.first else (*maps, h)


class DecoderBlock(nn.Module):
    """Transposed 4x4 of stride two, norm, dropout, concatenated with the skip map, ReLU."""

    def __init__(self, inputs: int, outputs: int, norm: nn.Module, dropout: float, first: bool) -> None:
        super().__init__()
        self.first = first
        self.conv = UpConv4x4(inputs, outputs)
        self.norm = norm
        self.dropout = Dropout(dropout) if dropout else None

    def forward(self, maps: tuple[Tensor, ...], y_B: Tensor | None = None) -> tuple[Tensor, ...]:
        *skips, newest = maps
        h = self.norm(self.conv(newest.relu() if self.first else newest))
        if self.dropout is not None:
            h = self.dropout(h)
        return (*skips[:-1], torch.cat([h, skips[-1]], 1).relu_())


class DecoderOutput(nn.Module):
    """Transposed 4x4 convolution of stride two and tanh, in at least float32."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(inputs, channels, 4, stride=2, padding=1)

    def forward(self, maps: tuple[Tensor, ...], y_B: Tensor | None = None) -> Tensor:
        return at_least_float32(self.conv(maps[-1])).tanh()


class Patch(nn.Module):
    """4x4 convolution, norm, leaky ReLU 0.2."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: nn.Module | None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 4, stride=stride, padding=1, bias=norm is None)
        self.norm = norm

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        h = self.conv(h)
        return F.leaky_relu(h if self.norm is None else self.norm(h), 0.2, inplace=True)


class PatchHead(nn.Module):
    """4x4 convolution to one logit per position, in at least float32: (logits (B, h, w), input)."""

    keeps_float32 = True

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, 1, 4, padding=1)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with autocast_off(h):
            features = at_least_float32(h)
            return self.conv(features).squeeze(1), features


def patch_layers(channels: int, width: int, halvings: int, norm: Callable[[int], nn.Module]) -> list[nn.Module]:
    """Return the layers of PatchGAN, C64-C128-… in the paper's notation: the first has no norm, the last no stride."""
    widths = _widths(width, halvings + 1)
    layers: list[nn.Module] = []
    for level, (inputs, outputs) in enumerate(pairwise((channels, *widths))):
        layers.append(Patch(inputs, outputs, 2 if level < halvings else 1, norm(outputs) if level else None))
    return [*layers, PatchHead(widths[-1])]


def _widths(width: int, levels: int) -> tuple[int, ...]:
    return tuple(width * min(2**level, 8) for level in range(levels))


def _norm(name: str) -> Any:
    return AffineBatchNorm if name == "batch" else lambda channels: nn.InstanceNorm2d(channels, affine=True)


def _required(condition: Tensor | None) -> Tensor:
    if condition is None:
        raise DataError("pix2pix needs an input image as condition; use data of pairs")
    return condition
