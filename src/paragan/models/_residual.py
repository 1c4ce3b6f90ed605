"""Residual networks of SNGAN, SAGAN and BigGAN: channels at each image size, chains of blocks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from torch import nn

from paragan.layers.attention import SelfAttention
from paragan.layers.blocks import DownBlock, NormImageOutput, Stem, UpBlock, Wrap
from paragan.layers.conditional_norm import batch_norm
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._block_networks import BlockDiscriminator, BlockGenerator
from paragan.models._checks import MapSizes, attention_sides
from paragan.models._options import Attention, NetworkOptions, Places


class Shape(NamedTuple):
    """Multiples of the width for G from the smallest map up and D from the image down."""

    g: tuple[int, ...]
    d: tuple[int, ...]
    halvings: int  # number of first blocks of D that halve the resolution


# Miyato et al. 2018, tables 4 to 6; 256 and 512 px: Brock et al. 2019, tables 8 and 9.
# The papers have no 8 and 16 px: the 32 px network with fewer halvings.
LARGE_SHAPES = {
    64: Shape((16, 8, 4, 2, 1), (1, 2, 4, 8, 16), 4),
    128: Shape((16, 16, 8, 4, 2, 1), (1, 2, 4, 8, 16, 16), 5),
    256: Shape((16, 16, 8, 8, 4, 2, 1), (1, 2, 4, 8, 8, 16, 16), 6),
    512: Shape((16, 16, 8, 8, 4, 2, 1, 1), (1, 1, 2, 4, 8, 8, 16, 16), 7),
    1024: Shape((16, 16, 8, 8, 4, 2, 1, 1, 1), (1, 1, 1, 2, 4, 8, 8, 16, 16), 8),
}
SNGAN_SHAPES = LARGE_SHAPES | {
    8: Shape((2, 2), (1, 1, 1, 1), 1),
    16: Shape((2, 2, 2), (1, 1, 1, 1), 2),
    32: Shape((2, 2, 2, 2), (1, 1, 1, 1), 2),
    48: Shape((8, 4, 2, 1), (1, 2, 4, 8, 16), 4),
}


@dataclass(frozen=True, kw_only=True)
class ResidualPlan:
    """Channels and attention of both networks at one image size.

    sizes: of G's maps. g_widths: from the smallest map up. d_widths: of the blocks from the image
    down; the first `halvings` halve. g_attention, d_attention: shorter sides of the maps with attention.
    """

    sizes: MapSizes
    g_widths: list[int]
    d_widths: list[int]
    halvings: int
    g_attention: tuple[int, ...] = ()
    d_attention: tuple[int, ...] = ()


class ResidualGenerator(BlockGenerator):
    """Generator of a plan whose norms look their gain and bias up by the label."""

    def __init__(
        self, options: NetworkOptions, plan: ResidualPlan, latent: int, colours: int, num_classes: int, wrap: Wrap
    ) -> None:
        super().__init__(options, num_classes)
        self.latent = latent
        stem = Stem(latent, plan.g_widths[0], wrap, plan.sizes.lowest)
        last = NormImageOutput(plan.g_widths[-1], colours, wrap)
        self.blocks = nn.ModuleList([stem, *up_blocks(plan, self.num_classes, wrap), last])


class ResidualDiscriminator(BlockDiscriminator):
    """Discriminator of a plan, with spectral norm.

    head: returns the last block for (features, classes).
    """

    def __init__(
        self,
        options: NetworkOptions,
        plan: ResidualPlan,
        colours: int,
        num_classes: int,
        head: Callable[[int, int], nn.Module],
    ) -> None:
        super().__init__(options, num_classes)
        downs = _down_blocks(plan, colours)
        self.blocks = nn.ModuleList([*downs, head(plan.d_widths[-1], self.num_classes)])


def shape_at(shapes: Mapping[int, Shape], sizes: MapSizes) -> Shape:
    """Return the shape of an image size, or else of the power of two with as many doublings.

    48 px, which is 6 doubled three times, has a shape of its own in `SNGAN_SHAPES`; 24 px has that of 16 px.
    """
    is_listed = sizes.lowest == (6, 6) and sizes.sides[-1] in shapes
    return shapes[sizes.sides[-1] if is_listed else 4 << sizes.doublings]


def residual_plan(
    shape: Shape, sizes: MapSizes, width: int, attention: Attention = None, default_attention: Places = None
) -> ResidualPlan:
    """Plan the networks at one image size. width: factor of `shape`. attention: the setting, or its value."""
    d_maps = [_side_after(number, sizes) for number in range(shape.halvings)]
    return ResidualPlan(
        sizes=sizes,
        g_widths=[width * times for times in shape.g],
        d_widths=[width * times for times in shape.d],
        halvings=shape.halvings,
        g_attention=attention_sides(attention, "g", default_attention, sizes.sides),
        d_attention=attention_sides(attention, "d", default_attention, d_maps),
    )


def sngan_plan(
    sizes: MapSizes, width: int | None, attention: Attention = None, default_attention: Places = None
) -> ResidualPlan:
    """Plan the networks of SNGAN and SAGAN. width: None is 128 up to 32 px and 64 above (paper)."""
    shape = shape_at(SNGAN_SHAPES, sizes)
    width = width or (128 if sizes.sides[-1] <= 32 else 64)
    return residual_plan(shape, sizes, width, attention, default_attention)


def up_blocks(plan: ResidualPlan, classes: int, wrap: Wrap) -> list[nn.Module]:
    """Return G's blocks after the first map; their norms use the label."""
    norm = partial(batch_norm, classes=classes)
    blocks: list[nn.Module] = first_attention(plan, wrap)
    for side, (a, b) in zip(plan.sizes.sides[1:], pairwise(plan.g_widths), strict=True):
        blocks.append(UpBlock(a, b, norm, wrap))
        if side in plan.g_attention:
            blocks.append(SelfAttention(b, wrap))
    return blocks


def first_attention(plan: ResidualPlan, wrap: Wrap) -> list[nn.Module]:
    """Return attention on G's smallest map, if planned, as a list."""
    return [SelfAttention(plan.g_widths[0], wrap)] if plan.sizes.sides[0] in plan.g_attention else []


def _down_blocks(plan: ResidualPlan, colours: int) -> list[nn.Module]:
    blocks: list[nn.Module] = []
    for number, (a, b) in enumerate(pairwise((colours, *plan.d_widths))):
        halves = number < plan.halvings
        blocks.append(DownBlock(inputs=a, outputs=b, down=halves, first=number == 0, wrap=spectral_norm))
        if halves and _side_after(number, plan.sizes) in plan.d_attention:
            blocks.append(SelfAttention(b, spectral_norm))
    return blocks


def _side_after(block: int, sizes: MapSizes) -> int:
    """Return the side of the map after one of the blocks of D that halve it; 0 is the first."""
    return sizes.sides[-1] >> (block + 1)


def default_attention_sides(sizes: MapSizes) -> Places:
    """Return half the image for each network, as D's first map is, 64 px at most; none on G's smallest map."""
    half = side_with_attention(sizes.sides[-1] // 2)
    return {"g": half if half > sizes.sides[0] else None, "d": half}


def side_with_attention(side: int) -> int:
    """Halve a side to at most 64 px, where attention is affordable: its cost grows with the square of the pixels."""
    while side > 64:
        side //= 2
    return side
