"""Flow U-Net: a rectified flow (Liu et al. 2022, "Flow Straight and Fast") as a generator of images.

x_t = (1 - t) x + t n goes from an image at t = 0 to noise at t = 1, and the network predicts v = n - x. G maps noise to
an image by `steps` steps of an ODE solver, of which one is z - v(z, 1). D is the encoder of the U-Net with a head for
each map, so it can start from G's weights. The U-Net is that of Ho et al. 2020 (DDPM) without attention, on patches.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import gcd, log, prod, sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.option_types import Count
from paragan.layers.blocks import fill_zero, run_blocks
from paragan.layers.conditional_norm import check_labels
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.models._block_networks import BlockDiscriminator, BlockGenerator
from paragan.models._checks import check_image_size
from paragan.models._options import NetworkOptions

_WAVES = 32  # of the time, as sines and cosines
_FASTEST = 1000  # radians per unit of time of the first wave; the last has about 1
_PATCH = 2  # side of the squares of pixels that are one position of the largest map


@dataclass(frozen=True, kw_only=True)
class Options(NetworkOptions):
    """Sizes of both networks, and how G solves the ODE."""

    width: Count = 32
    """Channels of the largest map."""
    multiples: tuple[Count, ...] = (1, 2)
    """Channels of each map as multiples of `width`, from the largest down; every one is half as large."""
    blocks: Count = 1
    """Residual blocks of each map, on the way down and up."""
    embed: Count = 64
    """Length of the embedding of time and class."""
    steps: Count = 1
    """Solver steps from noise to image; `--steps` of `sample`, `eval` and `export` overrides it."""
    solver: Literal["euler", "heun"] = "euler"
    """Heun calls the network twice per step, but once in the last (Karras et al. 2022, algorithm 1)."""


class Generator(BlockGenerator):
    """z_BZ (and y_B), a noise image in rows, to x_BCHW; with a time t_B, to the velocity at z_BZ."""

    bounded = False

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        self.latent = prod(shape)
        self.blocks = nn.ModuleList([Flow(options, shape, self.num_classes)])

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None, t_B: Tensor | None = None) -> Tensor:
        if t_B is None:
            return run_blocks(self.blocks, z_BZ, y_B)
        return self.blocks[0](z_BZ, y_B, t_B)


class Discriminator(BlockDiscriminator):
    """x_BCHW (and y_B) to logits and features; one more channel holds the time (`augment/flow_noise`)."""

    extra_channels = 1  # that an augmentation may append

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        encoder = TimedEncoder(options, shape, self.num_classes)
        self.blocks = nn.ModuleList([encoder, Heads(encoder.encoder.map_shapes, self.num_classes)])


class Flow(nn.Module):
    """The velocity network with its ODE solver. sampling_steps: may be set at any time."""

    def __init__(self, options: Options, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.options = options
        self.classes = classes
        self.shape = shape
        self.sampling_steps = options.steps
        self.solver = options.solver
        self.encoder = Encoder(options, shape, classes)
        self.decoder = Decoder(options, shape[0])

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None, t_B: Tensor | None = None) -> Tensor:
        x = z_BZ.reshape(-1, *self.shape)
        return self.solve(x, y_B) if t_B is None else self.velocity(x, y_B, t_B)

    def velocity(self, x: Tensor, y_B: Tensor | None, t_B: Tensor) -> Tensor:
        """Predict noise minus image, in at least float32."""
        *maps, embedding = self.encoder(x, y_B, t_B)
        return at_least_float32(self.decoder(maps, embedding))

    def solve(self, x: Tensor, y_B: Tensor | None) -> Tensor:
        """Integrate from t = 1 to 0 in equal steps."""
        num = self.sampling_steps
        for start, end in pairwise(1 - step / num for step in range(num + 1)):
            v = self.velocity(x, y_B, x.new_full((len(x),), start))
            if self.solver == "heun" and end > 0:
                v = (v + self.velocity(x + (end - start) * v, y_B, x.new_full((len(x),), end))) / 2
            x = x + (end - start) * v
        return x

    def blank(self) -> Flow:
        """Return a network of the same sizes with other weights, into which `penalties/_velocity` loads a teacher's."""
        return Flow(self.options, self.shape, self.classes)


class TimedEncoder(nn.Module):
    """The encoder as D's first block: its maps, at the time of an additional channel, else at 0."""

    def __init__(self, options: Options, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.channels = shape[0]
        self.encoder = Encoder(options, shape, classes)

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> list[Tensor]:
        has_time = x.shape[1] > self.channels
        t_B = x[:, -1, 0, 0] if has_time else x.new_zeros(len(x))
        *maps, _ = self.encoder(x[:, : self.channels], y_B, t_B)
        return maps


class ZeroEmbedding(nn.Embedding):
    """Embedding that starts at 0."""

    fill = fill_zero


class Heads(nn.Module):
    """A head for each map, whose logits are added."""

    def __init__(self, shapes: list[tuple[int, int, int]], classes: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList([MapHead(shape, classes) for shape in shapes])

    def forward(self, maps: list[Tensor], y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        outputs = [head(h, y_B) for head, h in zip(self.heads, maps, strict=True)]
        logits_B = torch.stack([logits_B for logits_B, _ in outputs]).sum(0)
        return logits_B, torch.cat([features_BF for _, features_BF in outputs], 1)


class MapHead(nn.Module):
    """1x1, swish, a weighted sum over positions, f (B, F), to logits w.f + b + e(y).f; at least float32."""

    keeps_float32 = True

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        width = shape[0]
        self.mix = nn.Conv2d(width, width, 1)
        self.basis = nn.Parameter(torch.randn(shape))
        self.linear = nn.Linear(width, 1)
        self.embed = ZeroEmbedding(classes, width) if classes else None

    def fill(self, role: str, tensor: Tensor, generator: torch.Generator) -> None:
        """Draw the weights of the positions with a standard deviation of 1 / side, of a square as large."""
        tensor.normal_(0.0, 1 / sqrt(tensor[0].numel()), generator=generator)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with autocast_off(h):
            features_BF = (F.silu(self.mix(at_least_float32(h))) * self.basis).sum((2, 3))
            logits_B = self.linear(features_BF).squeeze(1)
            if self.embed is not None:
                logits_B = logits_B + (self.embed(check_labels(y_B, len(h))) * features_BF).sum(1)
        return logits_B, features_BF


class Encoder(nn.Module):
    """Image, class and time to the map of each resolution, that of the middle block and the embedding."""

    def __init__(self, options: Options, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        widths = _widths(options)
        self.map_shapes = _map_shapes(options, shape)
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

    def __init__(self, options: Options, channels: int) -> None:
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


def _widths(options: Options) -> list[int]:
    return [options.width * times for times in options.multiples]


def _level(inputs: int, width: int, options: Options) -> nn.ModuleList:
    channels = pairwise((inputs, *[width] * options.blocks))
    return nn.ModuleList([ModulatedResidual(a, b, options.embed) for a, b in channels])


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(gcd(8, channels), channels)


def _waves(t_B: Tensor) -> Tensor:
    """Return sines and cosines of the time, of frequencies in a geometric series (Vaswani et al. 2017)."""
    exponents = torch.arange(_WAVES, dtype=t_B.dtype, device=t_B.device) / _WAVES
    angles = t_B[:, None] * _FASTEST * torch.exp(-log(_FASTEST) * exponents)
    return torch.cat([angles.cos(), angles.sin()], 1)


def _check_bottleneck(options: Options, channels: int) -> None:
    """Raise `ConfigError` for too few channels of the largest map: the noise of all pixels passes there."""
    width = _widths(options)[0]
    needed = channels * _PATCH**2
    if width < needed:
        raise ConfigError(
            f"model.width: a patch of {_PATCH} x {_PATCH} pixels has {needed} numbers, "
            f"and a map of {width} channels cannot pass them on; give {needed} or more"
        )


def _map_shapes(options: Options, shape: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Return the shape of each map, that of the middle block last; `ConfigError` for sides in between."""
    widths = _widths(options)
    factor = _PATCH << (len(widths) - 1)
    check_image_size(shape, factor, f"model.multiples of {len(widths)} maps")
    height, width = (side // _PATCH for side in shape[1:])
    shapes = [(channels, height >> level, width >> level) for level, channels in enumerate(widths)]
    return [*shapes, shapes[-1]]


# Networks of extra players, by name: DMD2's denoiser of G's images is the same network.
players = {"fake_score": Generator}
