"""ReACGAN (Kang et al. 2021, "Rebooting ACGAN"), for squares of 8 to 1024 px: the networks of `contragan`.

It differs in what is made of D's points: `penalties/data_to_data`, once for each side, instead of
`penalties/contrastive`. Parameters with the defaults (G / D): 32 px, 10 classes 9,416,196 / 2,517,186.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paragan.core.options import Count
from paragan.models import contragan


@dataclass(frozen=True)
class Options:
    """Those of `contragan`."""

    latent: Count | None = None
    width: Count = 96
    shared: Count = 128
    embed: Count | None = None
    flavour: Literal["studio", "brock"] = "studio"
    attention: bool | None = None
    conditional: bool | None = True
    weight_init: Literal["orthogonal", "glorot", "normal_0.02", "torch"] = "orthogonal"


class Generator(contragan.Generator):
    """z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    model = "reacgan"


class Discriminator(contragan.Discriminator):
    """x_BCHW and y_B to a `Verdict`."""

    model = "reacgan"
