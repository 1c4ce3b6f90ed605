"""Self-attention GAN (Zhang et al. 2019).

The residual networks of `sngan` with spectral norm and attention in both. Parameters with the
default width (G / D): 32 px, 10 classes 4,386,308 / 1,075,586; 64 px, 200 classes 13,387,396 /
19,752,642; 128 px, 1000 classes 42,017,412 / 39,448,258. Attention is where benchmarks have it;
the paper's best network of 128 px has it at 32 x 32 in both (`attention: 32`).
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from paragan.core.option_types import Count
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._checks import map_sizes
from paragan.models._heads import residual_head
from paragan.models._options import Attention, NetworkOptions, WeightInit
from paragan.models._residual import (
    ResidualDiscriminator,
    ResidualGenerator,
    ResidualPlan,
    default_attention_sides,
    sngan_plan,
)


@dataclass(frozen=True, kw_only=True)
class Options(NetworkOptions):
    """SAGAN's sizes, attention and labels."""

    attention: Attention = "default"
    """Sides of the maps with self-attention (channels: a multiple of 8); null: none.

    A number or a list for both networks, or `{g: 64, d: [64, 32]}`. `default`: half the image in
    either, 64 at most.
    """
    latent: Count = 128
    """Length of the latent vector z."""
    width: Count | None = None
    """Channels of D's first block; null: 128 up to 32 px, 64 above. G follows it as in `sngan`."""
    head: Literal["projection", "auxiliary"] = "projection"
    """Use of labels in D: `projection` adds a class term to the logit; `auxiliary` classifies.

    `auxiliary` is ACGAN, with the penalty `auxiliary`.
    """


class Generator(ResidualGenerator):
    """SAGAN's generator: z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    weight_init: WeightInit = "glorot"

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, _plan(options, shape), options.latent, shape[0], num_classes, spectral_norm)


class Discriminator(ResidualDiscriminator):
    """SAGAN's discriminator: x_BCHW (and y_B) to logits and features (last map, summed)."""

    weight_init: WeightInit = "glorot"

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        head = partial(residual_head, options.head)
        super().__init__(options, _plan(options, shape), shape[0], num_classes, head)


def _plan(options: Options, shape: tuple[int, int, int]) -> ResidualPlan:
    sizes = map_sizes(shape)
    return sngan_plan(sizes, options.width, options.attention, default_attention_sides(sizes))
