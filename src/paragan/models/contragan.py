"""ContraGAN (Kang & Park 2020): BigGAN with a contrastive D.

D embeds images and classes in one space. Its features are those embeddings, (B, 2, E): of the images, then of their
classes, each of length 1. Parameters with the defaults (G / D): 32 px, 10 classes 9,416,196 / 2,517,186; 128 px, 1000
classes 70,433,988 / 90,343,202. `reacgan` has the same networks.
"""

from dataclasses import dataclass
from functools import partial

from torch import nn

from paragan.layers.blocks import ReluHead
from paragan.layers.spectral_norm import spectral_norm
from paragan.models import biggan
from paragan.models._heads import ContrastHead
from paragan.models._options import ContrastOptions, WeightInit
from paragan.models._residual import ResidualDiscriminator


@dataclass(frozen=True, kw_only=True)
class Options(ContrastOptions):
    """Settings of BigGAN, and the space of D's embeddings."""


class Generator(biggan.Generator):
    """ContraGAN's generator: z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    def __init__(self, options: ContrastOptions, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(_biggan_options(options), shape, num_classes)


class Discriminator(ResidualDiscriminator):
    """ContraGAN's discriminator: x_BCHW and y_B to a `DiscriminatorOutput` with embeddings."""

    weight_init: WeightInit = "orthogonal"

    def __init__(self, options: ContrastOptions, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        plan = biggan.large_plan(_biggan_options(options), shape)
        embed = options.embed or _default_embed(min(shape[1:]))
        super().__init__(options, plan, shape[0], num_classes, partial(_head, embed))


def _biggan_options(options: ContrastOptions) -> biggan.Options:
    """Return BigGAN's settings; those that ContraGAN does not have are BigGAN's defaults."""
    return biggan.Options(
        conditional=options.conditional, latent=options.latent, width=options.width, shared=options.shared
    )


def _default_embed(side: int) -> int:
    if side <= 32:
        return 512
    return 768 if side <= 64 else 1536


def _head(embed: int, features: int, classes: int) -> nn.Module:
    """Return the last block: logits and embeddings; without classes, logits alone."""
    if classes:
        return ContrastHead(features, classes, embed, spectral_norm)
    return ReluHead(features, wrap=spectral_norm)
