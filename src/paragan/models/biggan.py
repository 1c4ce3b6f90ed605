"""BigGAN (Brock et al. 2019, tables 4 to 9), for squares of 8 to 1024 px.

The residual networks of `sagan`, wider; a class is a point in a space that all norms of G share, every block of G sees
a part of z of its own, and attention lies where the map is half as wide as the image, 64 at most. Parameters with the
defaults (G / D): 32 px, 10 classes 9,416,196 / 2,415,170; 128 px, 1000 classes 70,433,988 / 87,982,370; 64 px with
width 80, 200 classes 17,335,204 / 30,796,722. The paper has no 8, 16 and 1024 px.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

from torch import Tensor, nn

from paragan.core.options import Count
from paragan.core.types import Verdict
from paragan.layers.attention import SelfAttention
from paragan.layers.blocks import DownBlock, NormPaint, ReluHead, Stem, UpBlock, through
from paragan.layers.conditional_norm import batch_norm
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._checks import classes_of, side_of
from paragan.models._vector import Entry, Ignores, Reads, cut, norms

_EACH = 20  # numbers of z for a block


@dataclass(frozen=True)
class Options:
    """latent: length of z (None: 20 for every block of G and for its first map). width: what all channels are multiples
    of. shared: length of the vector of a class; 0: every norm has gains and biases of its own for each class, and all
    of z goes to the first map.

    flavour: `studio` as the networks of published CIFAR and Tiny-ImageNet benchmarks; `brock` as the authors' own code,
    whose D is twice as wide at 32 px and without attention there, and whose G is wider at 64 px.
    """

    latent: Count | None = None
    width: Count = 96
    shared: int = 128
    flavour: Literal["studio", "brock"] = "studio"
    attention: bool | None = None
    conditional: bool | None = True
    weight_init: Literal["orthogonal", "glorot", "normal_0.02", "torch"] = "orthogonal"


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
    """z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = classes_of(options.conditional, num_classes, "biggan")
        self.num_classes, self.weight_init = classes, options.weight_init
        side = side_of(shape, "biggan", tuple(SHAPES))
        widths = [options.width * times for times in shape_of(options.flavour, side).g]
        each = cut(options.latent, len(widths) - 1, _EACH, "biggan")
        self.latent = each * len(widths)
        if classes and not options.shared:
            blocks = _by_label(self.latent, widths, classes)
        else:
            blocks = _by_vector(each, widths, classes, options.shared)
        if (place := attended(options, side)) is not None:
            number = (place // 4).bit_length() - 1  # of the block that ends there, after the first map
            attention = SelfAttention(widths[number], spectral_norm)
            blocks.insert(number + 1, Ignores(attention) if isinstance(blocks[0], Entry) else attention)
        last = NormPaint(widths[-1], shape[0], spectral_norm)
        self.blocks = nn.ModuleList([*blocks, Ignores(last, last=True) if isinstance(blocks[0], Entry) else last])

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        return through(self.blocks, z_BZ, y_B)


class Discriminator(nn.Module):
    """x_BCHW (and y_B) to a `Verdict`; its features are the last map after ReLU, summed."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = classes_of(options.conditional, num_classes, "biggan")
        self.weight_init = options.weight_init
        blocks, features = trunk(options, shape, "biggan")
        self.blocks = nn.ModuleList([*blocks, ReluHead(features, classes, spectral_norm)])

    def forward(self, x_BCHW: Tensor, y_B: Tensor | None = None) -> Verdict:
        return Verdict.of(through(self.blocks, x_BCHW, y_B))


def trunk(options: Options, shape: tuple[int, int, int], model: str) -> tuple[list[nn.Module], int]:
    """The blocks of D up to the head, and the channels that they end with."""
    side = side_of(shape, model, tuple(SHAPES))
    _, multiples, halvings = shape_of(options.flavour, side)
    widths = [options.width * times for times in multiples]
    blocks: list[nn.Module] = []
    for number, (a, b) in enumerate(pairwise((shape[0], *widths))):
        blocks.append(DownBlock(a, b, number < halvings, number == 0, spectral_norm))
        if number < halvings and side >> (number + 1) == attended(options, side):
            blocks.append(SelfAttention(b, spectral_norm))
    return blocks, widths[-1]


def attended(options: Options, side: int) -> int | None:
    """The side of the map that attention sees; None: there is none."""
    wanted = options.flavour == "studio" or side > 32 if options.attention is None else options.attention
    return min(64, side // 2) if wanted else None


def shape_of(flavour: str, side: int) -> Shape:
    return _BROCK.get(side, SHAPES[side]) if flavour == "brock" else SHAPES[side]


def _by_label(latent: int, widths: list[int], classes: int) -> list[nn.Module]:
    norm = partial(batch_norm, classes=classes)
    ups = [UpBlock(a, b, norm, spectral_norm) for a, b in pairwise(widths)]
    return [Stem(latent, widths[0], spectral_norm), *ups]


def _by_vector(each: int, widths: list[int], classes: int, shared: int) -> list[nn.Module]:
    """Each block reads the point of the class and its own part of z, the first part being that of the first map."""
    point = shared if classes else 0
    norm = norms(point + each, spectral_norm)
    blocks: list[nn.Module] = [Entry(each, widths[0], classes, shared, spectral_norm)]
    for number, (a, b) in enumerate(pairwise(widths), start=1):
        own = slice(point + number * each, point + (number + 1) * each)
        blocks.append(Reads(UpBlock(a, b, norm, spectral_norm), slice(point), own))
    return blocks
