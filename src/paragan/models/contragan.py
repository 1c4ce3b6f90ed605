"""ContraGAN (Kang & Park 2020), for squares of 8 to 1024 px: BigGAN whose D compares images with one another.

D puts images and classes into one space. Its verdict's features are those points, (B, 2 E): of the images, then of
their classes, each of length 1. Parameters with the defaults (G / D): 32 px, 10 classes 9,416,196 / 2,517,186; 128 px,
1000 classes 70,433,988 / 90,343,202. `reacgan` has the same networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor, nn

from paragan.core.option_types import Count
from paragan.core.types import DiscriminatorOutput
from paragan.layers.blocks import ReluHead, run_blocks
from paragan.layers.spectral_norm import spectral_norm
from paragan.models import _large
from paragan.models._checks import effective_num_classes
from paragan.models._contrast import ContrastHead


@dataclass(frozen=True)
class Options:
    """BigGAN's, and the space in which D compares."""

    latent: Count | None = None
    """Length of z; null: 20 for every block of G and for its first layer."""
    width: Count = 96
    """Base number of channels; every layer has a multiple of it."""
    shared: Count = 128
    """Length of the class embedding shared by G's norms."""
    embed: Count | None = None
    """Dimensions of the space in which D compares images; null: 512 up to 32 px, 768 at 64 px, else 1536."""
    flavour: Literal["studio", "brock"] = "studio"
    """`studio`: the networks of published CIFAR and Tiny-ImageNet benchmarks. `brock`: the authors' code, with D
    twice as wide at 32 px and without attention there, and a wider G at 64 px.
    """
    attention: bool | None = None
    """Whether there is self-attention; null: as the flavour has it."""
    conditional: bool | None = True
    """Whether both networks see labels: true, false, or null (if the data has labels). false leaves a BigGAN
    without classes, where nothing is compared.
    """
    weight_init: Literal["orthogonal", "glorot", "normal_0.02", "torch"] = "orthogonal"
    """Scheme of the initial weights; `torch` leaves the layers' defaults."""


class _ContraGANOptions(_large.BigGANOptions, Protocol):
    @property
    def embed(self) -> int | None: ...


class Generator(_large.Generator):
    """z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    model = "contragan"


class Discriminator(nn.Module):
    """x_BCHW and y_B to a `DiscriminatorOutput`. model: what messages call it."""

    model = "contragan"

    def __init__(self, options: _ContraGANOptions, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = effective_num_classes(options.conditional, num_classes, self.model)
        self.weight_init = options.weight_init
        blocks, features = _large.discriminator(options, shape, self.model)
        embed = options.embed or (512 if shape[1] <= 32 else 768 if shape[1] <= 64 else 1536)
        head: nn.Module = ReluHead(features, 0, spectral_norm)
        if classes:
            head = ContrastHead(features, classes, embed, spectral_norm)
        self.blocks = nn.ModuleList([*blocks, head])

    def forward(self, x_BCHW: Tensor, y_B: Tensor | None = None) -> DiscriminatorOutput:
        return DiscriminatorOutput.of(run_blocks(self.blocks, x_BCHW, y_B))
