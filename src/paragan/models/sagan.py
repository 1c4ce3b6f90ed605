"""Self-attention GAN (Zhang et al. 2019): the residual networks of `sngan`, spectral norm in both, attention in either.

Attention sees the map that is half as wide as the image, 64 at most. Parameters with the default width (G / D): 32 px,
10 classes 4,386,308 / 1,075,586; 64 px, 200 classes 13,387,396 / 19,752,642; 128 px, 1000 classes 42,017,412 /
39,448,258.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from paragan.core.option_types import Count
from paragan.core.types import DiscriminatorOutput
from paragan.layers.attention import SelfAttention
from paragan.layers.blocks import DownBlock, NormImageOutput, Stem, UpBlock, run_blocks
from paragan.layers.conditional_norm import batch_norm
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._auxiliary import head
from paragan.models._checks import effective_num_classes, image_side
from paragan.models._residual import SHAPES

_SIDES = tuple(side for side, plan in SHAPES.items() if plan.lowest == 4)


@dataclass(frozen=True)
class Options:
    """SAGAN's sizes, attention and labels."""

    latent: Count = 128
    """Length of the latent vector z."""
    width: Count | None = None
    """Channels of D's first block; null: 128 up to 32 px, 64 above. G follows it as in `sngan`."""
    attention: bool = True
    """Whether there is self-attention; its feature maps need a multiple of 8 channels."""
    head: Literal["projection", "auxiliary"] = "projection"
    """How D uses labels: `projection` adds a class term to the logit; `auxiliary` classifies (ACGAN, with the
    penalty `auxiliary`).
    """
    conditional: bool | None = True
    """Whether both networks see labels: true, false, or null (if the data has labels)."""
    weight_init: Literal["glorot", "orthogonal", "normal_0.02", "torch"] = "glorot"
    """Scheme of the initial weights; `torch` leaves the layers' defaults."""


class Generator(nn.Module):
    """z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = effective_num_classes(options.conditional, num_classes, "sagan")
        self.latent, self.num_classes, self.weight_init = options.latent, classes, options.weight_init
        side = image_side(shape, "sagan", _SIDES)
        widths = SHAPES[side].g_widths(options.width)
        norm = partial(batch_norm, classes=classes)
        blocks: list[nn.Module] = [Stem(options.latent, widths[0], spectral_norm)]
        for number, (a, b) in enumerate(pairwise(widths)):
            blocks.append(UpBlock(a, b, norm, spectral_norm))
            if options.attention and 8 << number == _attention_side(side):
                blocks.append(SelfAttention(b, spectral_norm))
        self.blocks = nn.ModuleList([*blocks, NormImageOutput(widths[-1], shape[0], spectral_norm)])

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        return run_blocks(self.blocks, z_BZ, y_B)


class Discriminator(nn.Module):
    """x_BCHW (and y_B) to a `DiscriminatorOutput`; its features are the last map after ReLU, summed."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = effective_num_classes(options.conditional, num_classes, "sagan")
        self.weight_init = options.weight_init
        plan = SHAPES[side := image_side(shape, "sagan", _SIDES)]
        widths = plan.d_widths(options.width)
        blocks: list[nn.Module] = []
        for number, (a, b) in enumerate(pairwise((shape[0], *widths))):
            blocks.append(DownBlock(a, b, number < plan.halvings, number == 0, spectral_norm))
            if options.attention and number < plan.halvings and side >> (number + 1) == _attention_side(side):
                blocks.append(SelfAttention(b, spectral_norm))
        self.blocks = nn.ModuleList([*blocks, head(options.head, widths[-1], classes, spectral_norm)])

    def forward(self, x_BCHW: Tensor, y_B: Tensor | None = None) -> DiscriminatorOutput:
        return DiscriminatorOutput.of(run_blocks(self.blocks, x_BCHW, y_B))


def _attention_side(side: int) -> int:
    """The map that attention sees: small enough for one place to look at all others."""
    return min(64, side // 2)
