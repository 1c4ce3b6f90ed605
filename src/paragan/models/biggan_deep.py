"""BigGAN-deep (Brock et al. 2019, appendix B.2, tables 7 to 9), for squares of 8 to 1024 px.

Bottlenecks of four convolutions, two for each resolution; short-cuts that drop, repeat or add channels instead of
computing them; every norm of G reads all of z beside the class. Attention sees a map of 64 in G, in D half the image.
Parameters with the default width (G / D): 32 px, 10 classes 7,762,948 / 2,908,930; 1000 classes 32,874,372 /
20,951,554 at 64 px, 50,244,484 / 34,590,210 at 128 px, 55,736,708 / 38,001,666 at 256 px. The paper has no 8, 16, 32
and 1024 px.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.option_types import Count
from paragan.core.types import DiscriminatorOutput
from paragan.layers.attention import SelfAttention
from paragan.layers.blocks import Norm, NormImageOutput, ReluHead, Wrap, run_blocks
from paragan.layers.resample import UpConv2d
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._checks import effective_num_classes, image_side
from paragan.models._vector import LatentEntry, WithoutVector, WithVector, vector_norm

_NECK = 4  # by which a block's channels are divided inside


@dataclass(frozen=True)
class Options:
    """BigGAN-deep's sizes and variants."""

    latent: Count = 128
    """Length of the latent vector z."""
    width: Count = 128
    """Base number of channels; every layer has a multiple of it."""
    shared: Count = 128
    """Length of the class embedding shared by G's norms."""
    flavour: Literal["paper", "studio"] = "paper"
    """`paper`, or `studio` as a published 32 px benchmark has it: convolutional short-cuts, and a D that starts
    narrow.
    """
    attention: bool = True
    """Whether there is self-attention."""
    conditional: bool | None = True
    """Whether both networks see labels: true, false, or null (if the data has labels)."""
    weight_init: Literal["orthogonal", "glorot", "normal_0.02", "torch"] = "orthogonal"
    """Scheme of the initial weights; `torch` leaves the layers' defaults."""


class Shape(NamedTuple):
    """Multiples of the width: G from 4x4 up; D from the image down, of whose steps the first few halve."""

    g: tuple[int, ...]
    d: tuple[int, ...]
    halvings: int


SHAPES = {
    8: Shape((4, 4), (4, 4, 4), 1),
    16: Shape((4, 4, 4), (4, 4, 4), 2),
    32: Shape((4, 4, 4, 4), (4, 4, 4, 4), 2),
    64: Shape((16, 8, 4, 2, 1), (1, 2, 4, 8, 16), 3),
    128: Shape((16, 16, 8, 4, 2, 1), (1, 2, 4, 8, 16, 16), 4),
    256: Shape((16, 16, 8, 8, 4, 2, 1), (1, 2, 4, 8, 8, 16, 16), 5),
    512: Shape((16, 16, 8, 8, 4, 2, 1, 1), (1, 1, 2, 4, 8, 8, 16, 16), 6),
    1024: Shape((16, 16, 8, 8, 4, 2, 1, 1, 1), (1, 1, 1, 2, 4, 8, 8, 16, 16), 7),
}


class Generator(nn.Module):
    """z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = effective_num_classes(options.conditional, num_classes, "biggan_deep")
        self.latent, self.num_classes, self.weight_init = options.latent, classes, options.weight_init
        side = image_side(shape, "biggan_deep", tuple(SHAPES))
        widths = [options.width * times for times in SHAPES[side].g]
        vector = options.latent + (options.shared if classes else 0)
        norm, convolved = vector_norm(vector, spectral_norm), options.flavour == "studio"
        blocks: list[nn.Module] = [LatentEntry(vector, widths[0], classes, options.shared, spectral_norm, whole=True)]
        for number, (a, b) in enumerate(pairwise(widths)):
            for outputs, up in ((a, False), (b, True)):
                blocks.append(WithVector(UpNeck(a, outputs, up, convolved, norm, spectral_norm), slice(None)))
            if options.attention and 8 << number == (64 if side > 32 else side // 2):
                blocks.append(WithoutVector(SelfAttention(b, spectral_norm)))
        last = WithoutVector(NormImageOutput(widths[-1], shape[0], spectral_norm), last=True)
        self.blocks = nn.ModuleList([*blocks, last])

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        return run_blocks(self.blocks, z_BZ, y_B)


class Discriminator(nn.Module):
    """x_BCHW (and y_B) to a `DiscriminatorOutput`; its features are the last map after ReLU, summed."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = effective_num_classes(options.conditional, num_classes, "biggan_deep")
        self.weight_init = options.weight_init
        side = image_side(shape, "biggan_deep", tuple(SHAPES))
        _, multiples, halvings = SHAPES[side]
        convolved = options.flavour == "studio"
        first = 1 if convolved else multiples[0]
        widths = [options.width * times for times in (first, *multiples[1:])]
        blocks: list[nn.Module] = [InputConv(shape[0], widths[0], spectral_norm)]
        for number, (a, b) in enumerate(pairwise(widths)):
            down = number < halvings
            blocks += [DownNeck(a, b, down, convolved, spectral_norm), DownNeck(b, b, False, convolved, spectral_norm)]
            if options.attention and side >> (number + 1) == (side // 2 if side <= 256 else 64):
                blocks.append(SelfAttention(b, spectral_norm))
        self.blocks = nn.ModuleList([*blocks, ReluHead(widths[-1], classes, spectral_norm)])

    def forward(self, x_BCHW: Tensor, y_B: Tensor | None = None) -> DiscriminatorOutput:
        return DiscriminatorOutput.of(run_blocks(self.blocks, x_BCHW, y_B))


class UpNeck(nn.Module):
    """Norm, ReLU, 1x1, norm, ReLU, double, 3x3, norm, ReLU, 3x3, norm, ReLU, 1x1, beside x, doubled (figure 16).

    Where the block has fewer channels than x the short-cut drops the last ones. convolved: it is a 1x1 instead.
    """

    def __init__(self, inputs: int, outputs: int, up: bool, convolved: bool, norm: Norm, wrap: Wrap) -> None:
        super().__init__()
        inside, self.up = inputs // _NECK, up
        self.norm1, self.conv1 = norm(inputs), wrap(nn.Conv2d(inputs, inside, 1))
        self.norm2, self.conv2 = norm(inside), wrap(UpConv2d(inside, inside) if up else _same(inside))
        self.norm3, self.conv3 = norm(inside), wrap(_same(inside))
        self.norm4, self.conv4 = norm(inside), wrap(nn.Conv2d(inside, outputs, 1))
        self.shortcut = wrap(nn.Conv2d(inputs, outputs, 1)) if convolved else DropChannels(outputs)

    def forward(self, x: Tensor, c_BC: Tensor) -> Tensor:
        h = self.conv1(self.norm1(x, c_BC).relu_())
        h = self.conv2(self.norm2(h, c_BC).relu_())
        h = self.conv3(self.norm3(h, c_BC).relu_())
        h = self.conv4(self.norm4(h, c_BC).relu_())
        short = self.shortcut(x)
        return h.add_(F.interpolate(short, scale_factor=2) if self.up else short)


class DownNeck(nn.Module):
    """ReLU, 1x1, ReLU, 3x3, ReLU, 3x3, ReLU, halve, 1x1, beside x, halved (figure 16).

    Where the block has more channels than x a 1x1 makes those that lack. convolved: it makes all of them, wherever
    something changes shape.
    """

    def __init__(self, inputs: int, outputs: int, down: bool, convolved: bool, wrap: Wrap) -> None:
        super().__init__()
        inside = outputs // _NECK
        self.conv1 = wrap(nn.Conv2d(inputs, inside, 1))
        self.conv2 = wrap(_same(inside))
        self.conv3 = wrap(_same(inside))
        self.conv4 = wrap(nn.Conv2d(inside, outputs, 1))
        self.pool = nn.AvgPool2d(2) if down else nn.Identity()
        self.shortcut: nn.Module = nn.Identity()
        if convolved and (down or inputs != outputs):
            self.shortcut = wrap(nn.Conv2d(inputs, outputs, 1))
        elif inputs != outputs:
            self.shortcut = AddChannels(wrap(nn.Conv2d(inputs, outputs - inputs, 1)))

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        h = self.conv2(self.conv1(x.relu()).relu_())
        h = self.conv3(h.relu_()).relu_()
        return self.conv4(self.pool(h)) + self.shortcut(self.pool(x))


class InputConv(nn.Module):
    """3x3 from the image."""

    def __init__(self, channels: int, outputs: int, wrap: Wrap) -> None:
        super().__init__()
        self.conv = wrap(nn.Conv2d(channels, outputs, 3, padding=1))

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        return self.conv(x)


class DropChannels(nn.Module):
    """The first channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        return x[:, : self.channels]


class AddChannels(nn.Module):
    """x, and behind it more channels made of it."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(x)], 1)


def _same(channels: int) -> nn.Conv2d:
    return nn.Conv2d(channels, channels, 3, padding=1)
