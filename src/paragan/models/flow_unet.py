"""Flow U-Net: a rectified flow (Liu et al. 2022, "Flow Straight and Fast") as a generator of images.

x_t = (1 - t) x + t n goes from an image at t = 0 to noise at t = 1, and the network predicts
v = n - x. G maps noise to an image by `steps` steps of an ODE solver, of which one is z - v(z, 1).
D is the encoder of the U-Net with a head for each map, so it can start from G's weights. The U-Net
is that of Ho et al. 2020 (DDPM) without attention, on patches, for squares of 8 to 512 px.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.option_types import Count
from paragan.layers.blocks import fill_zero, run_blocks
from paragan.layers.conditional_norm import check_labels
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.models._block_networks import BlockDiscriminator, BlockGenerator
from paragan.models._options import UNetOptions
from paragan.models._timed_unet import Decoder, Encoder


@dataclass(frozen=True, kw_only=True)
class Options(UNetOptions):
    """Sizes of both networks, and how G solves the ODE."""

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
        velocity_BCHW: Tensor = self.blocks[0](z_BZ, y_B, t_B)
        return velocity_BCHW


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
        """Return a network of the same sizes with other weights."""
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

    def __init__(self, shapes: list[tuple[int, int]], classes: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList([MapHead(*shape, classes) for shape in shapes])

    def forward(self, maps: list[Tensor], y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        found = [head(h, y_B) for head, h in zip(self.heads, maps, strict=True)]
        logits_B = torch.stack([logits_B for logits_B, _ in found]).sum(0)
        return logits_B, torch.cat([features_BF for _, features_BF in found], 1)


class MapHead(nn.Module):
    """1x1, swish, a weighted sum over positions, f (B, F), to logits w.f + b + e(y).f; at least float32."""

    keeps_float32 = True

    def __init__(self, width: int, side: int, classes: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, 1)
        self.basis = nn.Parameter(torch.randn(width, side, side))
        self.linear = nn.Linear(width, 1)
        self.embed = ZeroEmbedding(classes, width) if classes else None

    def fill(self, role: str, tensor: Tensor, generator: torch.Generator) -> None:
        """Draw the weights of the positions with a standard deviation of 1 / side."""
        tensor.normal_(0.0, 1 / tensor.shape[-1], generator=generator)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with autocast_off(h):
            features_BF = (F.silu(self.mix(at_least_float32(h))) * self.basis).sum((2, 3))
            logits_B = self.linear(features_BF).squeeze(1)
            if self.embed is not None:
                logits_B = logits_B + (self.embed(check_labels(y_B, len(h))) * features_BF).sum(1)
        return logits_B, features_BF


players = {"fake_score": Generator}  # of DMD2: the same network, as a denoiser of G's images
