"""Strided convolutions without pooling (DCGAN, Radford et al. 2016).

As in current benchmarks, D has a 3x3 before every 4x4 of stride two and a 3x3 after the last, and G
ends in a 3x3; the slope of 0.2 is the paper's. At 32 px unconditional, G has 3,812,355 and D
2,931,009 parameters. With labels: class-conditional norms in G (and, by option, an embedding at its
smallest map), a projection in D.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.option_types import Count
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.blocks import Head, ImageOutput, Stem, Wrap, identity_wrap
from paragan.layers.conditional_norm import batch_norm
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._block_networks import BlockDiscriminator, BlockGenerator
from paragan.models._checks import map_sizes
from paragan.models._options import NetworkOptions, WeightInit


@dataclass(frozen=True, kw_only=True)
class Options(NetworkOptions):
    """DCGAN's sizes, labels and D's norm."""

    weight_init: WeightInit = "normal_0.02"
    """Scheme of the initial weights; `torch` leaves the layers' defaults."""
    latent: Count = 128
    """Length of the latent vector z."""
    width: Count = 64
    """Channels at the highest resolution, doubled at each lower one up to 16 times."""
    conditional: bool | None = False
    class_embedding: bool = False
    """Add an embedding of the class to G's smallest map; without it, classes differ only by the norms of G.

    On 6,000 digits of MNIST, 32 thousand images: label accuracy 0.97 instead of 0.76 (docs/internals/design/046).
    """
    d_norm: Literal["batch", "spectral", "none"] = "batch"
    """Norm of D; `batch` is the paper's.

    Batch norm mixes samples, so real and fake images go through D separately, and
    `gradient_penalty` refuses it.
    """


class Generator(BlockGenerator):
    """DCGAN's generator: z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        self.weight_init = options.weight_init
        self.latent = options.latent
        sizes = map_sizes(shape)
        widths = _widths(sizes.doublings, options.width)[::-1]
        embedded = self.num_classes if options.class_embedding else 0
        stem = Stem(options.latent, widths[0], size=sizes.lowest, classes=embedded)
        ups = [Up(a, b, self.num_classes) for a, b in pairwise(widths)]
        self.blocks = nn.ModuleList([stem, *ups, ImageOutput(widths[-1], shape[0])])


class Discriminator(BlockDiscriminator):
    """DCGAN's discriminator: x_BCHW (and y_B) to logits and features (last map, summed)."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        self.weight_init = options.weight_init
        norm: type[nn.Module] = AffineBatchNorm if options.d_norm == "batch" else nn.Identity
        wrap = spectral_norm if options.d_norm == "spectral" else identity_wrap
        *hidden, last = _widths(map_sizes(shape).doublings, options.width)
        downs = [Down(a, b, norm, wrap) for a, b in pairwise((shape[0], *hidden))]
        same = Same(hidden[-1], last, norm, wrap)
        self.blocks = nn.ModuleList([*downs, same, Head(last, self.num_classes, wrap)])


class Up(nn.Module):
    """Transposed 4x4 convolution of stride two, norm, ReLU."""

    def __init__(self, inputs: int, outputs: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1)
        self.norm = batch_norm(outputs, classes)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        return self.norm(self.conv(h), y_B).relu_()


class Same(nn.Module):
    """3x3 convolution, norm, leaky ReLU 0.2."""

    def __init__(self, inputs: int, outputs: int, norm: type[nn.Module], wrap: Wrap) -> None:
        super().__init__()
        self.conv = wrap(nn.Conv2d(inputs, outputs, 3, padding=1))
        self.norm = norm(outputs)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        return F.leaky_relu(self.norm(self.conv(h)), 0.2, inplace=True)


class Down(nn.Module):
    """3x3, then 4x4 convolution of stride two, each with norm and leaky ReLU 0.2."""

    def __init__(self, inputs: int, outputs: int, norm: type[nn.Module], wrap: Wrap) -> None:
        super().__init__()
        self.same = Same(inputs, outputs, norm, wrap)
        self.conv = wrap(nn.Conv2d(outputs, outputs, 4, stride=2, padding=1))
        self.norm = norm(outputs)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        return F.leaky_relu(self.norm(self.conv(self.same(h))), 0.2, inplace=True)


def _widths(doublings: int, width: int) -> tuple[int, ...]:
    """Return channels from the image down to the smallest map: (64, 128, 256, 512) at 32 px."""
    return tuple(width * min(2**step, 16) for step in range(doublings + 1))
