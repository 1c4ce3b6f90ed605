"""ReACGAN (Kang et al. 2021, "Rebooting ACGAN"), for squares of 8 to 1024 px: the networks of `contragan`.

It differs in what is made of D's points: `penalties/data_to_data`, once for each side, instead of
`penalties/contrastive`. Parameters with the defaults (G / D): 32 px, 10 classes 9,416,196 / 2,517,186.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paragan.core.option_types import Count
from paragan.models import contragan


@dataclass(frozen=True)
class Options:
    """Those of `contragan`."""

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


class Generator(contragan.Generator):
    """z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    model = "reacgan"


class Discriminator(contragan.Discriminator):
    """x_BCHW and y_B to a `DiscriminatorOutput`."""

    model = "reacgan"
