"""Residual GAN with spectral norm in D (SNGAN, Miyato et al. 2018).

With labels: class-conditional norms in G and a projection in D (Miyato & Koyama 2018). `ResidualDiscriminator` adds
the spectral norm. Parameters with the default width (G / D): 32 px, 10 classes 4,304,387 / 1,055,105; 64 px, 200
classes 13,366,915 / 19,747,521; 128 px, 1000 classes 41,996,931 / 39,443,137.

Sizes: 48 px is the papers' net for STL-10 (appendix B.4). They have no 8 and 16 px; those are the 32 px net with fewer
halvings; 256 and 512 px grow as BigGAN does there (Brock et al. 2019, tables 8, 9).

D differs from the authors' code, where the first convolution of a block has as many outputs as inputs, 64 px images are
halved five times (here four), the logit at 32 px has no bias, and 3x3 weights in blocks start sqrt(2) times as large.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from paragan.core.option_types import Count
from paragan.layers.blocks import identity_wrap
from paragan.models._checks import map_sizes
from paragan.models._heads import residual_head
from paragan.models._options import NetworkOptions, WeightInit
from paragan.models._residual import ResidualDiscriminator, ResidualGenerator, ResidualPlan, sngan_plan


@dataclass(frozen=True, kw_only=True)
class Options(NetworkOptions):
    """SNGAN's sizes and labels."""

    latent: Count = 128
    """Length of the latent vector z."""
    width: Count | None = None
    """Channels of D's first block; null: the paper's, 128 up to 32 px and 64 above.

    G is twice as wide up to 32 px and as wide above; above 32 px both grow towards the smallest map.
    """
    head: Literal["projection", "auxiliary"] = "projection"
    """Use of labels in D: `projection` adds a class term to the logit; `auxiliary` classifies.

    `auxiliary` is ACGAN, with the penalty `auxiliary`.
    """


class Generator(ResidualGenerator):
    """SNGAN's generator: z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    weight_init: WeightInit = "glorot"

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, _plan(options, shape), options.latent, shape[0], num_classes, identity_wrap)


class Discriminator(ResidualDiscriminator):
    """SNGAN's discriminator: x_BCHW (and y_B) to logits and features (last map, summed)."""

    weight_init: WeightInit = "glorot"

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        head = partial(residual_head, options.head)
        super().__init__(options, _plan(options, shape), shape[0], num_classes, head)


def _plan(options: Options, shape: tuple[int, int, int]) -> ResidualPlan:
    return sngan_plan(map_sizes(shape), options.width)
