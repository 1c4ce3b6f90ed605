"""The residual networks of BigGAN (Brock et al. 2019, tables 4 to 6), which later papers give other heads."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from paragan.layers.attention import SelfAttention
from paragan.layers.blocks import DownBlock, NormImageOutput, Stem, UpBlock, run_blocks
from paragan.layers.conditional_norm import batch_norm
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._checks import effective_num_classes, image_side
from paragan.models._vector import LatentEntry, WithoutVector, WithVector, latent_per_block, vector_norm

_EACH = 20  # numbers of z for a block


class BigGANOptions(Protocol):
    """What the options of these models have in common; `models/biggan` says what each means."""

    @property
    def latent(self) -> int | None: ...
    @property
    def width(self) -> int: ...
    @property
    def shared(self) -> int: ...
    @property
    def flavour(self) -> str: ...
    @property
    def attention(self) -> bool | None: ...
    @property
    def conditional(self) -> bool | None: ...
    @property
    def weight_init(self) -> str: ...


class Shape(NamedTuple):
    """Multiples of the width: G from 4x4 up; D from the image down, of whose blocks the first few halve."""

    g: tuple[int, ...]
    d: tuple[int, ...]
    halvings: int


SHAPES = {
    8: Shape((4, 4), (2, 2, 2, 2), 1),
    16: Shape((4, 4, 4), (2, 2, 2, 2), 2),
    32: Shape((4, 4, 4, 4), (2, 2, 2, 2), 2),
    64: Shape((16, 8, 4, 2, 1), (1, 2, 4, 8, 16), 4),
    128: Shape((16, 16, 8, 4, 2, 1), (1, 2, 4, 8, 16, 16), 5),
    256: Shape((16, 16, 8, 8, 4, 2, 1), (1, 2, 4, 8, 8, 16, 16), 6),
    512: Shape((16, 16, 8, 8, 4, 2, 1, 1), (1, 1, 2, 4, 8, 8, 16, 16), 7),
    1024: Shape((16, 16, 8, 8, 4, 2, 1, 1, 1), (1, 1, 1, 2, 4, 8, 8, 16, 16), 8),
}
_BROCK = {32: Shape((4, 4, 4, 4), (4, 4, 4, 4), 2), 64: Shape((16, 16, 8, 4, 2), (1, 2, 4, 8, 16), 4)}


class Generator(nn.Module):
    """z_BZ (and y_B) to x_BCHW in [-1, 1]. model: what messages call it."""

    model: str

    def __init__(self, options: BigGANOptions, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = effective_num_classes(options.conditional, num_classes, self.model)
        self.num_classes, self.weight_init = classes, options.weight_init
        blocks, self.latent = _generator(options, shape, classes, self.model)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        return run_blocks(self.blocks, z_BZ, y_B)


def _generator(
    wanted: BigGANOptions, shape: tuple[int, int, int], classes: int, model: str
) -> tuple[list[nn.Module], int]:
    """All blocks, and the length of z."""
    side = image_side(shape, model, tuple(SHAPES))
    widths = [wanted.width * times for times in _shape_of(wanted.flavour, side).g]
    each = latent_per_block(wanted.latent, len(widths) - 1, _EACH, model)
    latent = each * len(widths)
    by_label = classes > 0 and not wanted.shared
    blocks = _by_label(latent, widths, classes) if by_label else _by_vector(each, widths, classes, wanted.shared)
    if (place := _attention_side(wanted, side)) is not None:
        number = (place // 4).bit_length() - 1  # of the block that ends there, after the first map
        attention = SelfAttention(widths[number], spectral_norm)
        blocks.insert(number + 1, attention if by_label else WithoutVector(attention))
    last = NormImageOutput(widths[-1], shape[0], spectral_norm)
    return [*blocks, last if by_label else WithoutVector(last, last=True)], latent


def discriminator(wanted: BigGANOptions, shape: tuple[int, int, int], model: str) -> tuple[list[nn.Module], int]:
    """The blocks up to the head, and the channels that they end with."""
    side = image_side(shape, model, tuple(SHAPES))
    _, multiples, halvings = _shape_of(wanted.flavour, side)
    widths = [wanted.width * times for times in multiples]
    blocks: list[nn.Module] = []
    for number, (a, b) in enumerate(pairwise((shape[0], *widths))):
        blocks.append(DownBlock(a, b, number < halvings, number == 0, spectral_norm))
        if number < halvings and side >> (number + 1) == _attention_side(wanted, side):
            blocks.append(SelfAttention(b, spectral_norm))
    return blocks, widths[-1]


def _attention_side(wanted: BigGANOptions, side: int) -> int | None:
    """The side of the map that attention sees; None: there is none."""
    there = wanted.flavour == "studio" or side > 32 if wanted.attention is None else wanted.attention
    return min(64, side // 2) if there else None


def _shape_of(flavour: str, side: int) -> Shape:
    return _BROCK.get(side, SHAPES[side]) if flavour == "brock" else SHAPES[side]


def _by_label(latent: int, widths: list[int], classes: int) -> list[nn.Module]:
    norm = partial(batch_norm, classes=classes)
    ups = [UpBlock(a, b, norm, spectral_norm) for a, b in pairwise(widths)]
    return [Stem(latent, widths[0], spectral_norm), *ups]


def _by_vector(each: int, widths: list[int], classes: int, shared: int) -> list[nn.Module]:
    """Each block reads the point of the class and its own part of z, the first part being that of the first map."""
    point = shared if classes else 0
    norm = vector_norm(point + each, spectral_norm)
    blocks: list[nn.Module] = [LatentEntry(each, widths[0], classes, shared, spectral_norm)]
    for number, (a, b) in enumerate(pairwise(widths), start=1):
        own = slice(point + number * each, point + (number + 1) * each)
        blocks.append(WithVector(UpBlock(a, b, norm, spectral_norm), slice(point), own))
    return blocks
