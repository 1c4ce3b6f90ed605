"""BigGAN (Brock et al. 2019, tables 4 to 9), for squares of 8 to 1024 px.

The residual networks of `sagan`, wider, with a class embedding shared by all norms of G and a part
of z for each block of G. Parameters with the defaults (G / D): 32 px, 10 classes 9,416,196 /
2,415,170; 128 px, 1000 classes 70,433,988 / 87,982,370; 64 px with width 80, 200 classes 17,335,204
/ 30,796,722. The paper has no 8, 16 and 1024 px. The authors' code has attention `{g: 64}` at 64
px, where D has no such map, and at 64 above.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from paragan.models import _large
from paragan.models._auxiliary import head
from paragan.models._options import BigGANOptions


@dataclass(frozen=True, kw_only=True)
class Options(BigGANOptions):
    """BigGAN's sizes and variants."""

    head: Literal["projection", "auxiliary"] = "projection"
    """Use of labels in D: `projection` adds a class term to the logit; `auxiliary` classifies.

    `auxiliary` is ACGAN, with the penalty `auxiliary`.
    """


class Generator(_large.Generator):
    """BigGAN's generator: z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    model = "biggan"


class Discriminator(_large.Discriminator):
    """BigGAN's discriminator: x_BCHW (and y_B) to logits and features (last map, summed)."""

    model = "biggan"

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, shape, num_classes, partial(head, options.head))
