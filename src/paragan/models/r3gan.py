"""R3GAN (Huang et al. 2024, "The GAN is dead; long live the GAN!").

Residual networks without norms, the same for both players: 1x1 to twice the channels, grouped 3x3, 1x1 back, biases
before the two activations and nowhere else, Fix-up initialisation (Zhang et al. 2019), bilinear resampling. Trained
with the relativistic loss, R1 and R2. Images are not confined to [-1, 1] in training. Parameters of the paper's
networks (G / D): CIFAR-10 at width 768 20,781,952 / 21,280,512; ImageNet-64 at width 1536 103,570,432 / 107,205,120;
FFHQ-256, whose `g_widths` are [768, 768, 768, 768, 384, 192, 96], without labels 23,057,952 / 23,009,568.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator as Draws, Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.option_types import Count
from paragan.layers.blocks import fill_normal, fill_zero, run_blocks
from paragan.layers.conditional_norm import check_labels
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.resample import blur, upsample
from paragan.models._block_networks import BlockDiscriminator, BlockGenerator
from paragan.models._checks import map_sizes
from paragan.models._options import NetworkOptions

_SLOPE = 0.2
_BLOCKS = 2  # residual blocks per resolution (the authors' configurations of all data sets)


@dataclass(frozen=True, kw_only=True)
class Options(NetworkOptions):
    """Sizes of R3GAN."""

    latent: Count = 64
    """Length of the latent vector z."""
    width: Count = 768
    """Channels of every feature map."""
    g_widths: tuple[Count, ...] | None = None
    """Channels of G's maps, from the smallest up; null: `width` everywhere. D has them in reverse."""
    groups: Count = 96
    """Groups of the widest map's 3x3 convolutions, in proportion on others.

    Their number divides twice its width.
    """
    embed: Count = 64
    """Length of the class embedding in G."""


class Generator(BlockGenerator):
    """R3GAN's generator: z_BZ (and y_B) to x_BCHW, not confined to [-1, 1]."""

    bounded = False

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        self.latent = options.latent
        widths = _widths(options, shape)
        start = LearntInput(
            latent=options.latent,
            width=widths[0],
            size=map_sizes(shape).lowest,
            classes=self.num_classes,
            embed=options.embed,
        )
        stages = _stages(options, widths, "up")
        self.blocks = nn.ModuleList([start, *stages, ColourConv(widths[-1], shape[0])])


class Discriminator(BlockDiscriminator):
    """R3GAN's D: x_BCHW (and y_B) to logits and features (weighted sum of the last map)."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        widths = _widths(options, shape)[::-1]
        start = ColourConv(shape[0], widths[0])
        stages = _stages(options, widths, "down")
        head = BasisHead(widths[-1], map_sizes(shape).lowest, self.num_classes)
        self.blocks = nn.ModuleList([start, *stages, head])


def fill_by_fan_in(layer: FixupConv2d | FixupLinear, role: str, tensor: Tensor, generator: Draws) -> None:
    """Draw weights from N(0, gain^2 / fan-in). role: name of the parameter, the only one of such a layer."""
    tensor.normal_(0.0, layer.gain / sqrt(tensor[0].numel()), generator=generator)


class FixupConv2d(nn.Conv2d):
    """Convolution without bias in Fix-up initialisation."""

    fill = fill_by_fan_in

    def __init__(self, inputs: int, outputs: int, size: int = 1, groups: int = 1, gain: float = 1.0) -> None:
        super().__init__(inputs, outputs, size, padding=size // 2, groups=groups, bias=False)
        self.gain = gain


class FixupLinear(nn.Linear):
    """Linear layer without bias in Fix-up initialisation."""

    gain = 1.0
    fill = fill_by_fan_in

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)


class FixupEmbedding(nn.Embedding):
    """Class vectors as the authors' linear layer of one-hot labels draws them: their number is its fan-in."""

    def __init__(self, classes: int, length: int, gain: float = 1.0) -> None:
        super().__init__(classes, length)
        self.gain = gain

    def fill(self, role: str, tensor: Tensor, generator: Draws) -> None:
        """Draw the vectors from N(0, gain^2 / classes)."""
        tensor.normal_(0.0, self.gain / sqrt(len(tensor)), generator=generator)


class Stage(nn.Module):
    """Residual blocks of one resolution, after a resampling (not in the first stage) and a 1x1.

    The 1x1 changes the channels, on the smaller of the two maps.
    """

    def __init__(
        self, inputs: int, width: int, blocks: Iterable[Residual], resample: Literal["up", "down"] | None
    ) -> None:
        super().__init__()
        self.resample = resample
        self.change = nn.Identity() if inputs == width else FixupConv2d(inputs, width)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        if self.resample == "down":
            h = blur(h, before=1, after=1, stride=2)
        h = self.change(h)
        if self.resample == "up":
            h = upsample(h)
        return run_blocks(self.blocks, h)


class Residual(nn.Module):
    """Residual block x + 1x1 (act (grouped 3x3 (act (1x1 x + b)) + c)); the identity at first."""

    def __init__(self, width: int, groups: int, scale: float) -> None:
        super().__init__()
        wide = 2 * width
        gain = scale * sqrt(2 / (1 + _SLOPE**2))
        self.widen = FixupConv2d(width, wide, gain=gain)
        self.bias1 = Bias(wide)
        self.see = FixupConv2d(inputs=wide, outputs=wide, size=3, groups=groups, gain=gain)
        self.bias2 = Bias(wide)
        self.narrow = FixupConv2d(wide, width, gain=0.0)

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        h = F.leaky_relu(self.bias1(self.widen(x)), _SLOPE, inplace=True)
        h = F.leaky_relu(self.bias2(self.see(h)), _SLOPE, inplace=True)
        return x + self.narrow(h)


class Bias(nn.Module):
    """Bias per channel, 0 at the start."""

    fill = fill_zero

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias.to(x.dtype)[:, None, None]


class LearntInput(nn.Module):
    """Smallest map: a learnt one, whose channels are scaled by z and the class embedding."""

    fill = fill_normal

    def __init__(self, latent: int, width: int, size: tuple[int, int], classes: int, embed: int) -> None:
        super().__init__()
        self.embed = FixupEmbedding(classes, embed) if classes else None
        self.basis = nn.Parameter(torch.randn(width, *size))
        self.linear = FixupLinear(latent + (embed if classes else 0), width)

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        if self.embed is not None:
            z_BZ = torch.cat([z_BZ, self.embed(check_labels(y_B, len(z_BZ))).to(z_BZ.dtype)], 1)
        return self.basis * self.linear(z_BZ)[:, :, None, None]


class ColourConv(nn.Module):
    """1x1 convolution between channels and colours."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = FixupConv2d(inputs, outputs)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        return at_least_float32(self.conv(h))


class BasisHead(nn.Module):
    """Weighted sum of the last map to a logit, or a projection on the label; at least float32."""

    keeps_float32 = True

    def __init__(self, width: int, size: tuple[int, int], classes: int) -> None:
        super().__init__()
        self.basis = nn.Parameter(torch.randn(width, *size))
        self.linear = FixupLinear(width, width if classes else 1)
        self.embed = FixupEmbedding(classes, width, 1 / sqrt(width)) if classes else None

    def fill(self, role: str, tensor: Tensor, generator: Draws) -> None:
        """Draw `basis` from N(0, 1 / pixels), so that the sum over the map has the mean square of a pixel.

        The other parameters are those of its layers, which draw them themselves. role: as in `fill_by_fan_in`.
        """
        tensor.normal_(0.0, 1 / sqrt(tensor[0].numel()), generator=generator)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with autocast_off(h):
            features_BF = (at_least_float32(h) * self.basis).sum((2, 3))
            projected = self.linear(features_BF)
            if self.embed is None:
                return projected.squeeze(1), features_BF
            towards = self.embed(check_labels(y_B, len(h)))
            return (projected * towards).sum(1), features_BF


def _widths(options: Options, shape: tuple[int, int, int]) -> list[int]:
    """Return the channels of all maps, from the smallest up, or raise `ConfigError` if their number is wrong."""
    default = [options.width] * (map_sizes(shape).doublings + 1)
    widths = options.g_widths
    if widths is not None and len(widths) != len(default):
        counts = f"{len(widths)} widths for {len(default)} maps"
        raise ConfigError(f"model.g_widths: {counts}; give one width for each, as in {default}")
    return default if widths is None else list(widths)


def _stages(options: Options, widths: list[int], resample: Literal["up", "down"]) -> list[Stage]:
    """Return all stages of one network."""
    # Fix-up (Zhang et al. 2019) draws smaller weights for more residual blocks L: L^(-1 / (2m - 2)) for m = 3 layers
    scale = (_BLOCKS * len(widths)) ** -0.25
    stages = []
    for number, width in enumerate(widths):
        groups = _groups(options.groups, width, max(widths))
        blocks = [Residual(width, groups, scale) for _ in range(_BLOCKS)]
        stages.append(Stage(widths[max(0, number - 1)], width, blocks, resample if number else None))
    return stages


def _groups(groups: int, width: int, widest: int) -> int:
    """Return the groups of the 3x3 of a map with `width` channels; the widest map has `groups`."""
    if (2 * widest) % groups:
        near = next(fewer for fewer in range(groups, 0, -1) if (2 * widest) % fewer == 0)
        raise ConfigError(
            f"model.groups={groups} does not divide {2 * widest} channels (twice the widest map); "
            f"pass model.groups={near}"
        )
    if groups == 1:
        return 1
    share, rest = divmod(groups * width, widest)
    if rest or (2 * width) % share:
        raise ConfigError(
            f"model.groups: {groups} groups of the widest map, of {widest} channels, leave no "
            f"whole number for a map of {width}; give widths in the ratio of whole groups, or "
            "model.groups=1"
        )
    return share
