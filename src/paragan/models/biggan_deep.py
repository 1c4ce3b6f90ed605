"""BigGAN-deep (Brock et al. 2019, appendix B.2, tables 7 to 9).

Bottlenecks of four convolutions, two for each resolution; short-cuts that drop, repeat or add channels instead of
computing them; every norm of G reads all of z and the class. Parameters with the default width (G / D): 32 px, 10
classes 7,762,948 / 2,908,930; 1000 classes 32,874,372 / 20,951,554 at 64 px, 50,244,484 / 34,590,210 at 128 px,
55,736,708 / 38,247,426 at 256 px. Attention is on maps of 64 px (all tables), in D of 64 px images on those of 32 px.
The paper has no 8, 16, 32, 64 and 1024 px.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.option_types import Count
from paragan.layers.attention import SelfAttention
from paragan.layers.blocks import Norm, NormImageOutput, ReluHead, Wrap
from paragan.layers.resample import UpConv2d
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._block_networks import BlockDiscriminator, BlockGenerator
from paragan.models._checks import map_sizes
from paragan.models._options import NetworkOptions, Places, WeightInit
from paragan.models._residual import (
    LARGE_SHAPES,
    ResidualPlan,
    Shape,
    default_attention_sides,
    first_attention,
    residual_plan,
    shape_at,
    side_with_attention,
)
from paragan.models._vector import LatentEntry, WithoutVector, WithVector, vector_norm

_NECK = 4  # divisor of a block's channels inside


@dataclass(frozen=True, kw_only=True)
class Options(NetworkOptions):
    """BigGAN-deep's sizes."""

    latent: Count = 128
    """Length of the latent vector z."""
    width: Count = 128
    """Base number of channels; every layer has a multiple of it."""
    shared: Count = 128
    """Length of the class embedding shared by G's norms."""


_SHAPES = {
    8: Shape((4, 4), (4, 4, 4), 1),
    16: Shape((4, 4, 4), (4, 4, 4), 2),
    32: Shape((4, 4, 4, 4), (4, 4, 4, 4), 2),
    **LARGE_SHAPES,  # every pair of D's widths halves: its maps end at 4 x 4
}


class Generator(BlockGenerator):
    """BigGAN-deep's generator: z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    weight_init: WeightInit = "orthogonal"

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        self.latent = options.latent
        plan = _plan(options, shape)
        classes = self.num_classes
        vector = options.latent + (options.shared if classes else 0)
        norm = vector_norm(vector, spectral_norm)
        entry = LatentEntry(
            stem_inputs=vector,
            channels=plan.g_widths[0],
            classes=classes,
            shared=options.shared,
            wrap=spectral_norm,
            size=plan.sizes.lowest,
            from_vector=True,
        )
        first = map(WithoutVector, first_attention(plan, spectral_norm))
        blocks: list[nn.Module] = [entry, *first]
        for number, (a, b) in enumerate(pairwise(plan.g_widths), start=1):
            for outputs, up in ((a, False), (b, True)):
                neck = UpNeck(inputs=a, outputs=outputs, up=up, norm=norm, wrap=spectral_norm)
                blocks.append(WithVector(neck, slice(None)))
            if plan.sizes.sides[number] in plan.g_attention:
                blocks.append(WithoutVector(SelfAttention(b, spectral_norm)))
        last = WithoutVector(NormImageOutput(plan.g_widths[-1], shape[0], spectral_norm), last=True)
        self.blocks = nn.ModuleList([*blocks, last])


class Discriminator(BlockDiscriminator):
    """BigGAN-deep's discriminator: x_BCHW (and y_B) to logits and features (last map, summed)."""

    weight_init: WeightInit = "orthogonal"

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        plan = _plan(options, shape)
        blocks: list[nn.Module] = [InputConv(shape[0], plan.d_widths[0], spectral_norm)]
        for number, (a, b) in enumerate(pairwise(plan.d_widths)):
            down = number < plan.halvings
            blocks.append(DownNeck(a, b, down, spectral_norm))
            blocks.append(DownNeck(b, b, False, spectral_norm))
            if down and plan.sizes.sides[-1] >> (number + 1) in plan.d_attention:
                blocks.append(SelfAttention(b, spectral_norm))
        self.blocks = nn.ModuleList([*blocks, ReluHead(plan.d_widths[-1], self.num_classes, spectral_norm)])


class UpNeck(nn.Module):
    """Bottleneck of G, x + 1x1 (3x3 (3x3 (1x1 x))), with norm and ReLU before each (figure 16).

    up: doubles the resolution before the first 3x3. The short-cut drops the last channels if the
    block has fewer than x.
    """

    def __init__(self, inputs: int, outputs: int, up: bool, norm: Norm, wrap: Wrap) -> None:
        super().__init__()
        inside = inputs // _NECK
        self.up = up
        self.norm1 = norm(inputs)
        self.conv1 = wrap(nn.Conv2d(inputs, inside, 1))
        self.norm2 = norm(inside)
        self.conv2 = wrap(UpConv2d(inside, inside) if up else _same(inside))
        self.norm3 = norm(inside)
        self.conv3 = wrap(_same(inside))
        self.norm4 = norm(inside)
        self.conv4 = wrap(nn.Conv2d(inside, outputs, 1))
        self.outputs = outputs

    def forward(self, x: Tensor, c_BC: Tensor) -> Tensor:
        h = self.conv1(self.norm1(x, c_BC).relu_())
        h = self.conv2(self.norm2(h, c_BC).relu_())
        h = self.conv3(self.norm3(h, c_BC).relu_())
        h = self.conv4(self.norm4(h, c_BC).relu_())
        short = x[:, : self.outputs]
        return h.add_(F.interpolate(short, scale_factor=2) if self.up else short)


class DownNeck(nn.Module):
    """Bottleneck of D, x + 1x1 (3x3 (3x3 (1x1 x))), with ReLU before each (figure 16).

    down: halves the resolution before the last 1x1. A 1x1 adds the channels that x has less than the block.
    """

    def __init__(self, inputs: int, outputs: int, down: bool, wrap: Wrap) -> None:
        super().__init__()
        inside = outputs // _NECK
        self.conv1 = wrap(nn.Conv2d(inputs, inside, 1))
        self.conv2 = wrap(_same(inside))
        self.conv3 = wrap(_same(inside))
        self.conv4 = wrap(nn.Conv2d(inside, outputs, 1))
        self.pool = nn.AvgPool2d(2) if down else nn.Identity()
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = AddChannels(wrap(nn.Conv2d(inputs, outputs - inputs, 1)))

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        h = self.conv2(self.conv1(x.relu()).relu_())
        h = self.conv3(h.relu_()).relu_()
        return self.conv4(self.pool(h)) + self.shortcut(self.pool(x))


class InputConv(nn.Module):
    """3x3 convolution of the image."""

    def __init__(self, channels: int, outputs: int, wrap: Wrap) -> None:
        super().__init__()
        self.conv = wrap(nn.Conv2d(channels, outputs, 3, padding=1))

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        return self.conv(x)


class AddChannels(nn.Module):
    """Input, followed by channels that a convolution computes from it."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(x)], 1)


def _plan(options: Options, shape: tuple[int, int, int]) -> ResidualPlan:
    sizes = map_sizes(shape)
    side = sizes.sides[-1]
    attention: Places = default_attention_sides(sizes)
    if side >= 64:
        attention = {"g": side_with_attention(side), "d": side_with_attention(side // 2)}
    return residual_plan(shape_at(_SHAPES, sizes), sizes, options.width, attention)


def _same(channels: int) -> nn.Conv2d:
    return nn.Conv2d(channels, channels, 3, padding=1)
