"""Self-attention GAN (Zhang et al. 2019), for squares of 8 to 512 px.

The residual networks of `sngan` with spectral norm and attention in both. Parameters with the
default width (G / D): 32 px, 10 classes 4,386,308 / 1,075,586; 64 px, 200 classes 13,387,396 /
19,752,642; 128 px, 1000 classes 42,017,412 / 39,448,258.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from paragan.core.option_types import Count
from paragan.core.outputs import DiscriminatorOutput
from paragan.layers.blocks import NormImageOutput, Stem, run_blocks
from paragan.layers.spectral_norm import spectral_norm
from paragan.models import _residual
from paragan.models._auxiliary import head
from paragan.models._checks import effective_num_classes, image_side
from paragan.models._options import AttentionOptions, WeightInit


@dataclass(frozen=True, kw_only=True)
class Options(AttentionOptions):
    """SAGAN's sizes, attention and labels."""

    latent: Count = 128
    """Length of the latent vector z."""
    width: Count | None = None
    """Channels of D's first block; null: 128 up to 32 px, 64 above. G follows it as in `sngan`."""
    head: Literal["projection", "auxiliary"] = "projection"
    """Use of labels in D: `projection` adds a class term to the logit; `auxiliary` classifies.

    `auxiliary` is ACGAN, with the penalty `auxiliary`.
    """
    weight_init: WeightInit = "glorot"


class Generator(nn.Module):
    """SAGAN's generator: z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = effective_num_classes(options.conditional, num_classes, "sagan")
        self.latent = options.latent
        self.num_classes = classes
        self.weight_init = options.weight_init
        plan = _plan(options, shape)
        stem = Stem(options.latent, plan.g_widths[0], spectral_norm, plan.lowest)
        last = NormImageOutput(plan.g_widths[-1], shape[0], spectral_norm)
        ups = _residual.up_blocks(plan, classes, spectral_norm)
        self.blocks = nn.ModuleList([stem, *ups, last])

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        return run_blocks(self.blocks, z_BZ, y_B)


class Discriminator(nn.Module):
    """SAGAN's discriminator: x_BCHW (and y_B) to logits and features (last map, summed)."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = effective_num_classes(options.conditional, num_classes, "sagan")
        self.weight_init = options.weight_init
        plan = _plan(options, shape)
        downs = _residual.down_blocks(plan, shape[0])
        self.blocks = nn.ModuleList([*downs, head(options.head, plan.d_widths[-1], classes)])

    def forward(self, x_BCHW: Tensor, y_B: Tensor | None = None) -> DiscriminatorOutput:
        return DiscriminatorOutput.of(run_blocks(self.blocks, x_BCHW, y_B))


def _plan(options: Options, shape: tuple[int, int, int]) -> _residual.ResidualPlan:
    side = image_side(shape, "sagan", 512)
    return _residual.sngan_plan(options, side, options.width, _residual.default_attention(side))
