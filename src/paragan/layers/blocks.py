"""Pieces that the convolutional models share, and how a chain of them is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.conditional_norm import batch_norm, check_labels
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.resample import DownConv2d, UpConv2d

Norm = Callable[[int], nn.Module]  # for so many channels
# what a discriminator does to its layers: `spectral_norm` or `plain`
Wrap = Callable[[nn.Module], nn.Module]


def identity_wrap(module: nn.Module) -> nn.Module:
    """The module, unchanged."""
    return module


def run_blocks(blocks: Iterable[nn.Module], h: Any, y_B: Tensor | None = None) -> Any:
    """Every block in order, each called `block(h, y_B)`. A pipeline cuts this list anywhere."""
    for block in blocks:
        h = block(h, y_B)
    return h


class Stem(nn.Module):
    """Latents to the smallest map: (B, Z) to (B, channels, side, side)."""

    def __init__(self, latent: int, channels: int, wrap: Wrap = identity_wrap, side: int = 4) -> None:
        super().__init__()
        self.side = side
        self.linear = wrap(nn.Linear(latent, channels * side**2))

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        return self.linear(z_BZ).unflatten(1, (-1, self.side, self.side))


class UpBlock(nn.Module):
    """Pre-activation residual block that doubles the resolution (Miyato et al. 2018, appendix B.4, figure 9; table 4).

    BN, ReLU, double, 3x3, BN, ReLU, 3x3, plus double, 1x1. The 1x1 runs before its doubling: the
    same function, a quarter of the work. norm: makes one for so many channels, called with whatever
    the block is called with.
    """

    def __init__(self, inputs: int, outputs: int, norm: Norm = batch_norm, wrap: Wrap = identity_wrap) -> None:
        super().__init__()
        self.norm1 = norm(inputs)
        self.conv1 = wrap(UpConv2d(inputs, outputs))
        self.norm2 = norm(outputs)
        self.conv2 = wrap(nn.Conv2d(outputs, outputs, 3, padding=1))
        self.shortcut = wrap(nn.Conv2d(inputs, outputs, 1))

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        # in place is safe: no norm reads its own output in backward
        h = self.conv1(self.norm1(x, y_B).relu_())
        h = self.conv2(self.norm2(h, y_B).relu_())
        return h.add_(F.interpolate(self.shortcut(x), scale_factor=2))


class DownBlock(nn.Module):
    """Residual block of a discriminator (Miyato et al. 2018, appendix B.4, figure 9; tables 4 to 6).

    ReLU, 3x3, ReLU, 3x3, halve, plus 1x1, halve; the first block, which sees the image, has no
    first ReLU. The halving of the short-cut runs before its 1x1: the same function, a quarter of
    the work. Where nothing changes shape the short-cut is x. hidden: channels between the two 3x3,
    `outputs` unless given.
    """

    def __init__(
        self, inputs: int, outputs: int, down: bool, first: bool, wrap: Wrap, hidden: int | None = None
    ) -> None:
        super().__init__()
        hidden = hidden or outputs
        # not in place: the short-cut reads the same tensor
        self.act = nn.Identity() if first else nn.ReLU()
        self.conv1 = wrap(nn.Conv2d(inputs, hidden, 3, padding=1))
        self.conv2 = wrap(DownConv2d(hidden, outputs) if down else nn.Conv2d(hidden, outputs, 3, padding=1))
        self.pool = nn.AvgPool2d(2) if down else nn.Identity()
        self.shortcut = wrap(nn.Conv2d(inputs, outputs, 1)) if down or inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        h = self.conv2(self.conv1(self.act(x)).relu_())
        return h.add_(self.shortcut(self.pool(x)))


class ImageOutput(nn.Module):
    """The last block of a generator: a 3x3 convolution and tanh, images in [-1, 1] and at least float32."""

    def __init__(self, inputs: int, channels: int, wrap: Wrap = identity_wrap) -> None:
        super().__init__()
        self.conv = wrap(nn.Conv2d(inputs, channels, 3, padding=1))

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        return at_least_float32(self.conv(h)).tanh()


class Head(nn.Module):
    """The last block of a discriminator: features f (B, F), summed over the map, to logits w.f + b + e(y).f.

    The last term is the projection of the label (Miyato & Koyama 2018, "cGANs with projection
    discriminator", figure 1d); without classes it is absent. Computed in at least float32.
    """

    keeps_float32 = True

    def __init__(self, features: int, classes: int = 0, wrap: Wrap = identity_wrap) -> None:
        super().__init__()
        self.linear = wrap(nn.Linear(features, 1))
        self.embed = wrap(nn.Embedding(classes, features)) if classes else None

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with autocast_off(h):
            features_BF = h.sum((2, 3), dtype=torch.promote_types(h.dtype, torch.float32))
            logits_B = self.linear(features_BF).squeeze(1)
            if self.embed is not None:
                logits_B = logits_B + (self.embed(check_labels(y_B, len(h))) * features_BF).sum(1)
        return logits_B, features_BF


class NormImageOutput(ImageOutput):
    """Batch norm (one gain per channel, labels or not), ReLU, then paint."""

    def __init__(self, inputs: int, channels: int, wrap: Wrap = identity_wrap) -> None:
        super().__init__(inputs, channels, wrap)
        self.norm = AffineBatchNorm(inputs)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        return super().forward(self.norm(h).relu_())


class ReluHead(Head):
    """The residual blocks end before their activation."""

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return super().forward(h.relu(), y_B)
