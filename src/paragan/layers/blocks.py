"""Blocks that the convolutional models share, and a function that runs a chain of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.conditional_norm import batch_norm, check_labels
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.resample import DownConv2d, UpConv2d

Norm = Callable[[int], nn.Module]  # argument: number of channels
# applied to layers with weights: `spectral_norm` or `identity_wrap`
Wrap = Callable[[nn.Module], nn.Module]


def identity_wrap(module: nn.Module) -> nn.Module:
    """Return the module unchanged."""
    return module


def fill_normal(module: nn.Module, role: str, tensor: Tensor, generator: torch.Generator) -> None:
    """Draw a parameter from N(0, 1), a bias is 0; `fill` of modules that no scheme knows."""
    tensor.zero_() if role == "bias" else tensor.normal_(generator=generator)


def fill_zero(module: nn.Module, role: str, tensor: Tensor, generator: torch.Generator) -> None:
    """Set a parameter to 0; `fill` of modules that no scheme knows."""
    tensor.zero_()


class BlockRunner(ABC):
    """A list of blocks that runs them itself, such as one whose blocks are on several ranks."""

    @abstractmethod
    def run(self, h: Any, y_B: Tensor | None = None) -> Any:
        """Run all blocks in order."""


def run_blocks(blocks: Iterable[nn.Module] | BlockRunner, h: Any, y_B: Tensor | None = None) -> Any:
    """Run all blocks in order, each as `block(h, y_B)`. A pipeline can cut this list anywhere."""
    if isinstance(blocks, BlockRunner):
        return blocks.run(h, y_B)
    for block in blocks:
        h = block(h, y_B)
    return h


class Stem(nn.Module):
    """First block of a generator: latents (B, Z) to the smallest map (B, channels, *size).

    classes: of which the map gets an embedding added, as Mirza & Osindero 2014 give the label to G; 0: none.
    """

    def __init__(
        self,
        latent: int,
        channels: int,
        wrap: Wrap = identity_wrap,
        size: tuple[int, int] = (4, 4),
        classes: int = 0,
    ) -> None:
        super().__init__()
        self.size = size
        self.linear = wrap(nn.Linear(latent, channels * prod(size)))
        self.embed = wrap(nn.Embedding(classes, channels * prod(size))) if classes else None

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        h = self.linear(z_BZ)
        if self.embed is not None:
            h = h + self.embed(check_labels(y_B, len(h))).to(h.dtype)
        return h.unflatten(1, (-1, *self.size))


class UpBlock(nn.Module):
    """Pre-activation residual block that doubles the resolution (Miyato et al. 2018, figure 9).

    BN, ReLU, double, 3x3, BN, ReLU, 3x3, plus a short-cut of 1x1 and double: the 1x1 before its
    doubling is the same function at a quarter of the work. norm: returns a norm for a number of
    channels; it is called with the arguments of the block.
    """

    def __init__(self, inputs: int, outputs: int, norm: Norm = batch_norm, wrap: Wrap = identity_wrap) -> None:
        super().__init__()
        self.norm1 = norm(inputs)
        self.conv1 = wrap(UpConv2d(inputs, outputs))
        self.norm2 = norm(outputs)
        self.conv2 = wrap(nn.Conv2d(outputs, outputs, 3, padding=1))
        self.shortcut = wrap(nn.Conv2d(inputs, outputs, 1))

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        # in place is safe: no norm reads its output in backward
        h = self.conv1(self.norm1(x, y_B).relu_())
        h = self.conv2(self.norm2(h, y_B).relu_())
        return h.add_(F.interpolate(self.shortcut(x), scale_factor=2))


class DownBlock(nn.Module):
    """Residual block of a discriminator (Miyato et al. 2018, figure 9, tables 4 to 6).

    ReLU, 3x3, ReLU, 3x3, halve, plus a short-cut of halve and 1x1: halving before the 1x1 is the same function at a
    quarter of the work. first: the block reads the image and has no first ReLU. The short-cut is x if no shape changes.
    """

    def __init__(self, inputs: int, outputs: int, down: bool, first: bool, wrap: Wrap) -> None:
        super().__init__()
        # not in place: the short-cut reads the same tensor
        self.act = nn.Identity() if first else nn.ReLU()
        self.conv1 = wrap(nn.Conv2d(inputs, outputs, 3, padding=1))
        conv2 = DownConv2d(outputs, outputs) if down else nn.Conv2d(outputs, outputs, 3, padding=1)
        self.conv2 = wrap(conv2)
        self.pool = nn.AvgPool2d(2) if down else nn.Identity()
        is_learned = down or inputs != outputs
        self.shortcut = wrap(nn.Conv2d(inputs, outputs, 1)) if is_learned else nn.Identity()

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        h = self.conv2(self.conv1(self.act(x)).relu_())
        return h.add_(self.shortcut(self.pool(x)))


class ImageOutput(nn.Module):
    """Last block of a generator: 3x3 convolution and tanh, in at least float32.

    The convolution, too: in bf16 its output has steps of 1/64 where images are nearly white.
    """

    keeps_float32 = True

    def __init__(self, inputs: int, channels: int, wrap: Wrap = identity_wrap, bias: bool = True) -> None:
        super().__init__()
        self.conv = wrap(nn.Conv2d(inputs, channels, 3, padding=1, bias=bias))

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        with autocast_off(h):
            return self.conv(at_least_float32(h)).tanh()


class Head(nn.Module):
    """Last block of a discriminator: map to logits w.f + b + e(y).f and features f (B, F).

    f is the sum over the map. The last term is the projection of the label (Miyato & Koyama 2018,
    "cGANs with projection discriminator", figure 1d), absent without classes. At least float32.
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
    """Last block of a generator: batch norm (not conditional), ReLU, 3x3 convolution, tanh."""

    def __init__(self, inputs: int, channels: int, wrap: Wrap = identity_wrap) -> None:
        super().__init__(inputs, channels, wrap)
        self.norm = AffineBatchNorm(inputs)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        return super().forward(self.norm(h).relu_())


class ReluHead(Head):
    """Last block of a discriminator with a ReLU first, for residual blocks that end without one."""

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return super().forward(h.relu(), y_B)
