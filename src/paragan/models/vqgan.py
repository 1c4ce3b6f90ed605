"""VQGAN (Esser et al. 2021, "Taming Transformers"): images to tokens of a codebook, and back.

G is an encoder, a vector quantizer and a decoder; it reconstructs the images of the batch. D is PatchGAN, as in
pix2pix. The defaults are a small version, for images of 16 to 64 px. Differences from the paper: codes and vectors have
unit norm (ViT-VQGAN, Yu et al. 2022); one residual block for each resolution (the paper: 2), 4x4 convolutions that
halve (3x3), no middle blocks and no attention; two halvings before D's patches (3); G ends in tanh. Differences from
the authors' code: norms have an epsilon of 1e-5 (1e-6), and D starts with torch's weights (N(0, 0.02)).
"""

from dataclasses import dataclass
from itertools import pairwise
from math import gcd

import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.option_types import Count
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.precision import at_least_float32
from paragan.layers.resample import UpConv2d
from paragan.layers.vector_quantizer import VectorQuantizer
from paragan.models._checks import check_image_size
from paragan.models._options import WeightInit
from paragan.models.pix2pix import MIN_PATCHED, patch_layers

SAMPLE = "image"  # the tensor that G generates, for `build.data`
_D_HALVINGS = 2  # of the image before D's patches


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes of both networks."""

    width: Count = 64
    """Channels of the first halving, doubled at each, at most twice; the paper: 128 before the first.

    D has half as many in its first layer.
    """
    halvings: Count = 2
    """Halvings of the image before the tokens: 2 for 8x8 tokens at 32 px; the paper: 4."""
    codes: Count = 512
    """Size of the codebook; the paper: 1024."""
    depth: Count = 8
    """Numbers of a code's vector; the paper: 256, of any norm."""


class Generator(nn.Module):
    """`image` (B, C, H, W) in [-1, 1] to its reconstruction; losses and tokens are in `extra`."""

    latent = 0  # no z: it is called with the images of a batch
    weight_init: WeightInit = "torch"

    def __init__(self, options: Options, shape: tuple[int, ...], num_classes: int = 0) -> None:
        super().__init__()
        self.input_multiple = 2**options.halvings  # to which `apply` pads images
        check_image_size(shape, self.input_multiple, f"model.halvings={options.halvings}")
        widths = [options.width * min(2**level, 4) for level in range(options.halvings)]
        to_codes = nn.Conv2d(widths[-1], options.depth, 1)
        down = _downwards(shape[0], widths)
        self.encoder = nn.Sequential(*down, _norm(widths[-1]), nn.SiLU(), to_codes)
        self.quantizer = VectorQuantizer(options.codes, options.depth)
        first = nn.Conv2d(options.depth, widths[-1], 3, padding=1)
        self.decoder = nn.Sequential(first, *_upwards(widths[::-1]), _norm(widths[0]), nn.SiLU())
        self.last = nn.Conv2d(widths[0], shape[0], 3, padding=1)

    def forward(self, image: Tensor) -> GeneratorOutput:
        vectors_BDhw, extra = self.quantizer(self.encoder(image))
        return GeneratorOutput(self.decode(vectors_BDhw), extra)

    def encode(self, image: Tensor) -> Tensor:
        """Return the tokens (B, h, w) of images."""
        _, extra = self.quantizer(self.encoder(image))
        return extra["tokens"]

    def decode(self, vectors_BDhw: Tensor) -> Tensor:
        """Return images of a map of codes (B, depth, h, w), as `quantizer.vectors` returns it for tokens."""
        return at_least_float32(self.last(self.decoder(vectors_BDhw))).tanh()


class Discriminator(nn.Module):
    """PatchGAN: images to logits (B, h, w), one per patch, and the last map."""

    weight_init: WeightInit = "torch"

    def __init__(self, options: Options, shape: tuple[int, ...], num_classes: int = 0) -> None:
        super().__init__()
        check_image_size(shape, min_side=MIN_PATCHED << _D_HALVINGS)
        self.blocks = nn.Sequential(*patch_layers(shape[0], max(1, options.width // 2), _D_HALVINGS, AffineBatchNorm))

    def forward(self, image: Tensor) -> DiscriminatorOutput:
        return DiscriminatorOutput.of(self.blocks(image))


class GroupNormResidual(nn.Module):
    """Group norm, swish, 3x3, twice, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([_norm(width), _norm(width)])
        self.convs = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(2)])

    def forward(self, h: Tensor) -> Tensor:
        residual = h
        for norm, conv in zip(self.norms, self.convs, strict=True):
            residual = conv(F.silu(norm(residual)))
        return h + residual


def _downwards(channels: int, widths: list[int]) -> list[nn.Module]:
    """Return a 4x4 convolution of stride two and a residual block for each width."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((channels, *widths)):
        layers += [nn.Conv2d(inputs, outputs, 4, 2, 1), GroupNormResidual(outputs)]
    return layers


def _upwards(widths: list[int]) -> list[nn.Module]:
    """Return a residual block and a 3x3 convolution at twice the resolution for each width."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((*widths, widths[-1])):
        layers += [GroupNormResidual(inputs), UpConv2d(inputs, outputs)]
    return layers


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(gcd(32, width), width)
