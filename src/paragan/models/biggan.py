"""BigGAN (Brock et al. 2019, tables 4 to 9).

The residual networks of `sagan`, wider, with a class embedding shared by all norms of G and a part
of z for each block of G. Parameters with the defaults (G / D): 32 px, 10 classes 9,416,196 /
2,415,170; 128 px, 1000 classes 70,433,988 / 87,982,370; 64 px with width 80, 200 classes 17,335,204
/ 30,796,722. The paper has no 8, 16 and 1024 px. The authors' code has attention on maps of 64 px: for
64 px images in G alone (`{g: 64}`), as D has no such map there; for larger ones in both. The paper's
G of 256 px images has it at 128 x 128 (table 5: `{g: 128, d: 64}`).
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

from torch import nn

from paragan.layers.attention import SelfAttention
from paragan.layers.blocks import NormImageOutput, Stem, UpBlock
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._block_networks import BlockGenerator
from paragan.models._checks import map_sizes
from paragan.models._heads import residual_head
from paragan.models._options import Attention, BigGANOptions, Places, WeightInit
from paragan.models._residual import (
    LARGE_SHAPES,
    ResidualDiscriminator,
    ResidualPlan,
    Shape,
    first_attention,
    residual_plan,
    shape_at,
    side_with_attention,
    up_blocks,
)
from paragan.models._vector import LatentEntry, WithoutVector, WithVector, latent_per_block, vector_norm

_LATENT_PER_BLOCK = 20
_STUDIO = LARGE_SHAPES | {
    8: Shape((4, 4), (2, 2, 2, 2), 1),  # widths of G's and D's blocks; blocks of D that halve the map
    16: Shape((4, 4, 4), (2, 2, 2, 2), 2),
    32: Shape((4, 4, 4, 4), (2, 2, 2, 2), 2),
}
_BROCK = _STUDIO | {
    32: Shape((4, 4, 4, 4), (4, 4, 4, 4), 2),
    64: Shape((16, 16, 8, 4, 2), (1, 2, 4, 8, 16), 4),
}


@dataclass(frozen=True, kw_only=True)
class Options(BigGANOptions):
    """BigGAN's sizes and variants."""

    attention: Attention = "default"
    """Sides of the maps with self-attention (channels: a multiple of 8); null: none.

    A number or a list for both networks, or `{g: 64, d: [64, 32]}`. `default`: half the image in
    either, 64 at most, and none up to 32 px in the flavour `brock`.
    """
    flavour: Literal["studio", "brock"] = "studio"
    """Variant of the networks: `studio` (published CIFAR and Tiny-ImageNet benchmarks) or `brock`.

    `brock`: the authors' code, with D twice as wide at 32 px, and a wider G at 64 px.
    """
    head: Literal["projection", "auxiliary"] = "projection"
    """Use of labels in D: `projection` adds a class term to the logit; `auxiliary` classifies.

    `auxiliary` is ACGAN, with the penalty `auxiliary`.
    """


class Generator(BlockGenerator):
    """BigGAN's generator: z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    weight_init: WeightInit = "orthogonal"

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        classes = self.num_classes
        plan = large_plan(options, shape)
        part = latent_per_block(options.latent, len(plan.g_widths) - 1, _LATENT_PER_BLOCK)
        self.latent = part * len(plan.g_widths)
        last: nn.Module = NormImageOutput(plan.g_widths[-1], shape[0], spectral_norm)
        if classes and not options.shared:
            stem = Stem(self.latent, plan.g_widths[0], spectral_norm, plan.sizes.lowest)
            blocks = [stem, *up_blocks(plan, classes, spectral_norm)]
        else:
            blocks = _vector_blocks(plan, part, classes, options.shared)
            last = WithoutVector(last, last=True)
        self.blocks = nn.ModuleList([*blocks, last])


class Discriminator(ResidualDiscriminator):
    """BigGAN's discriminator: x_BCHW (and y_B) to logits and features (last map, summed)."""

    weight_init: WeightInit = "orthogonal"

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        plan = large_plan(options, shape)
        super().__init__(options, plan, shape[0], num_classes, partial(residual_head, options.head))


def large_plan(options: Options, shape: tuple[int, int, int]) -> ResidualPlan:
    """Plan BigGAN's networks at one image size."""
    sizes = map_sizes(shape)
    default: Places = side_with_attention(sizes.sides[-1] // 2)
    shapes = _STUDIO
    if options.flavour == "brock":
        shapes = _BROCK
        default = default if sizes.sides[-1] > 32 else None
    return residual_plan(shape_at(shapes, sizes), sizes, options.width, options.attention, default)


def _vector_blocks(plan: ResidualPlan, part: int, classes: int, shared: int) -> list[nn.Module]:
    """Return G's blocks: each reads the class embedding, `shared` numbers, and its `part` numbers of z."""
    embedding = shared if classes else 0  # numbers of the vector in front of z
    norm = vector_norm(embedding + part, spectral_norm)
    entry = LatentEntry(
        stem_inputs=part,
        channels=plan.g_widths[0],
        classes=classes,
        shared=shared,
        wrap=spectral_norm,
        size=plan.sizes.lowest,
    )
    attention = map(WithoutVector, first_attention(plan, spectral_norm))
    blocks: list[nn.Module] = [entry, *attention]
    for number, (a, b) in enumerate(pairwise(plan.g_widths), start=1):
        of_z = slice(embedding + number * part, embedding + (number + 1) * part)  # the entry has part 0
        blocks.append(WithVector(UpBlock(a, b, norm, spectral_norm), slice(embedding), of_z))
        if plan.sizes.sides[number] in plan.g_attention:
            blocks.append(WithoutVector(SelfAttention(b, spectral_norm)))
    return blocks
