"""Real-ESRGAN (Wang et al. 2021): images from reduced ones by residual dense blocks, against a U-Net.

G is that of ESRGAN (Wang et al. 2018, figure 4): residual-in-residual dense blocks at the low resolution, then
nearest-neighbour upsampling by convolutions. D is a U-Net with spectral norm and a logit for each pixel (figure 6).
Dense blocks start at a tenth of He initialisation, as in the authors' code. The defaults are a small version.
Difference from the papers: G ends in tanh. At the paper's sizes G has 16,697,987 and D 4,376,897 parameters. With
factor 2, G doubles once (the authors' code: squares of 2x2 pixels become channels, and it doubles twice).
"""

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator as Draws, Tensor, nn

from paragan.core.option_types import Count
from paragan.core.outputs import DiscriminatorOutput
from paragan.layers.precision import at_least_float32
from paragan.layers.resample import UpConv2d
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._checks import check_image_size
from paragan.models._options import WeightInit

SAMPLE = "image"  # the tensor that G generates, for `build.data`
_SLOPE = 0.2
_RESIDUAL_SCALE = 0.2
_DENSE_LAYERS = 5
_DENSE_BLOCKS = 3


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes of both networks."""

    factor: Literal[2, 4, 8] = 4
    """Height of the generated image divided by that of `low`."""
    width: Count = 32
    """Channels of G, half as many of each layer in a dense block; the paper: 64."""
    blocks: Count = 4
    """Residual-in-residual dense blocks; the paper: 23."""
    d_width: Count = 16
    """Channels of D's first layer, doubled at each of three halvings; the paper: 64."""


class Generator(nn.Module):
    """`low` (B, C', h, w) in [-1, 1] to images (B, C, factor * h, factor * w). condition_channels: C'; None: C."""

    latent = 0  # no z: it is called with the images of a batch
    input_multiple = 1  # `low` of any size: no layer halves it
    weight_init: WeightInit = "torch"

    def __init__(
        self, options: Options, shape: tuple[int, ...], num_classes: int = 0, condition_channels: int | None = None
    ) -> None:
        super().__init__()
        check_image_size(shape, options.factor, f"model.factor={options.factor}", min_side=8)
        channels = shape[0]
        width = options.width
        self.first = nn.Conv2d(condition_channels or channels, width, 3, padding=1)
        self.blocks = nn.ModuleList([ResidualInResidual(width, max(1, width // 2)) for _ in range(options.blocks)])
        self.after_blocks = nn.Conv2d(width, width, 3, padding=1)
        self.ups = nn.ModuleList([UpConv2d(width, width) for _ in range(options.factor.bit_length() - 1)])
        self.high = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, low: Tensor) -> Tensor:
        first = self.first(low)
        h = first
        for block in self.blocks:
            h = block(h)
        h = first + self.after_blocks(h)
        for up in self.ups:
            h = F.leaky_relu(up(h), _SLOPE)
        h = F.leaky_relu(self.high(h), _SLOPE)
        return at_least_float32(self.last(h)).tanh()


class ResidualInResidual(nn.Module):
    """Three dense blocks, each added to its input, and a residual around them."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.dense = nn.ModuleList([DenseBlock(width, growth) for _ in range(_DENSE_BLOCKS)])

    def forward(self, h: Tensor) -> Tensor:
        residual = h
        for block in self.dense:
            residual = block(residual)
        return h + _RESIDUAL_SCALE * residual


class DenseConv2d(nn.Conv2d):
    """3x3 convolution of a dense block, whose output is small at the start."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)

    def fill(self, role: str, tensor: Tensor, generator: Draws) -> None:
        """Draw weights from N(0, 0.1^2 * 2 / fan-in); biases are 0 (Wang et al. 2018, section 3.1)."""
        if role == "bias":
            tensor.zero_()
        else:
            tensor.normal_(0, 0.1 * sqrt(2 / tensor[0].numel()), generator=generator)


class DenseBlock(nn.Module):
    """Five 3x3 convolutions, each of which reads the input and all layers before it."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        outputs = [growth] * (_DENSE_LAYERS - 1) + [width]
        self.convs = nn.ModuleList([DenseConv2d(width + i * growth, out) for i, out in enumerate(outputs)])

    def forward(self, h: Tensor) -> Tensor:
        layers = [h]
        for conv in self.convs[:-1]:
            layers.append(F.leaky_relu(conv(torch.cat(layers, 1)), _SLOPE))
        return h + _RESIDUAL_SCALE * self.convs[-1](torch.cat(layers, 1))


class Discriminator(nn.Module):
    """U-Net with spectral norm: images to logits (B, H, W), one per pixel."""

    weight_init: WeightInit = "torch"

    def __init__(self, options: Options, shape: tuple[int, ...], num_classes: int = 0) -> None:
        super().__init__()
        widths = [options.d_width << level for level in range(4)]
        self.first = nn.Conv2d(shape[0], widths[0], 3, padding=1)
        self.downs = nn.ModuleList([spectral_norm(nn.Conv2d(a, b, 4, 2, 1, bias=False)) for a, b in pairwise(widths)])
        ups = pairwise(widths[::-1])
        self.ups = nn.ModuleList([spectral_norm(nn.Conv2d(a, b, 3, padding=1, bias=False)) for a, b in ups])
        same = [nn.Conv2d(widths[0], widths[0], 3, padding=1, bias=False) for _ in range(2)]
        self.high = nn.ModuleList(map(spectral_norm, same))
        self.last = nn.Conv2d(widths[0], 1, 3, padding=1)

    def forward(self, image: Tensor) -> DiscriminatorOutput:
        h = F.leaky_relu(self.first(image), _SLOPE)
        skips = []
        for down in self.downs:
            skips.append(h)
            h = F.leaky_relu(down(h), _SLOPE)
        for up, skip in zip(self.ups, reversed(skips), strict=True):
            larger = F.interpolate(h, skip.shape[2:], mode="bilinear")
            h = skip + F.leaky_relu(up(larger), _SLOPE)
        for conv in self.high:
            h = F.leaky_relu(conv(h), _SLOPE)
        return DiscriminatorOutput.of(at_least_float32(self.last(h)).squeeze(1))
