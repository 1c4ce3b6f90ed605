"""BigGAN (Brock et al. 2019, tables 4 to 9), for squares of 8 to 1024 px.

The residual networks of `sagan`, wider; a class is a point in a space that all norms of G share, every block of G sees
a part of z of its own, and attention lies where the map is half as wide as the image, 64 at most. Parameters with the
defaults (G / D): 32 px, 10 classes 9,416,196 / 2,415,170; 128 px, 1000 classes 70,433,988 / 87,982,370; 64 px with
width 80, 200 classes 17,335,204 / 30,796,722. The paper has no 8, 16 and 1024 px.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from paragan.core.option_types import Count, Natural
from paragan.core.types import DiscriminatorOutput
from paragan.layers.blocks import run_blocks
from paragan.layers.spectral_norm import spectral_norm
from paragan.models import _large
from paragan.models._auxiliary import head
from paragan.models._checks import effective_num_classes


@dataclass(frozen=True)
class Options:
    """BigGAN's sizes and variants."""

    latent: Count | None = None
    """Length of z; null: 20 for every block of G and for its first layer."""
    width: Count = 96
    """Base number of channels; every layer has a multiple of it."""
    shared: Natural = 128
    """Length of the class embedding shared by G's norms; 0: each norm has its own gains and biases per class, and
    all of z enters the first layer.
    """
    flavour: Literal["studio", "brock"] = "studio"
    """`studio`: the networks of published CIFAR and Tiny-ImageNet benchmarks. `brock`: the authors' code, with D
    twice as wide at 32 px and without attention there, and a wider G at 64 px.
    """
    attention: bool | None = None
    """Whether there is self-attention; null: as the flavour has it."""
    head: Literal["projection", "auxiliary"] = "projection"
    """How D uses labels: `projection` adds a class term to the logit; `auxiliary` classifies (ACGAN, with the
    penalty `auxiliary`).
    """
    conditional: bool | None = True
    """Whether both networks see labels: true, false, or null (if the data has labels)."""
    weight_init: Literal["orthogonal", "glorot", "normal_0.02", "torch"] = "orthogonal"
    """Scheme of the initial weights; `torch` leaves the layers' defaults."""


class Generator(_large.Generator):
    """z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    model = "biggan"


class Discriminator(nn.Module):
    """x_BCHW (and y_B) to a `DiscriminatorOutput`; its features are the last map after ReLU, summed."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = effective_num_classes(options.conditional, num_classes, "biggan")
        self.weight_init = options.weight_init
        blocks, features = _large.discriminator(options, shape, "biggan")
        self.blocks = nn.ModuleList([*blocks, head(options.head, features, classes, spectral_norm)])

    def forward(self, x_BCHW: Tensor, y_B: Tensor | None = None) -> DiscriminatorOutput:
        return DiscriminatorOutput.of(run_blocks(self.blocks, x_BCHW, y_B))
