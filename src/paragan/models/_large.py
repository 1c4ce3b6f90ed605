"""Networks of BigGAN (Brock et al. 2019, tables 4 to 6), shared by models with other heads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn

from paragan.core.outputs import DiscriminatorOutput
from paragan.layers.attention import SelfAttention
from paragan.layers.blocks import NormImageOutput, Stem, UpBlock, run_blocks
from paragan.layers.spectral_norm import spectral_norm
from paragan.models import _residual
from paragan.models._checks import effective_num_classes, image_side
from paragan.models._options import BigGANOptions
from paragan.models._residual import LARGE_SHAPES, ResidualPlan, Shape
from paragan.models._vector import LatentEntry, WithoutVector, WithVector, latent_per_block, vector_norm

_LATENT_PER_BLOCK = 20
_STUDIO = LARGE_SHAPES | {
    8: Shape((4, 4), (2, 2, 2, 2), 1),
    16: Shape((4, 4, 4), (2, 2, 2, 2), 2),
    32: Shape((4, 4, 4, 4), (2, 2, 2, 2), 2),
}
_BROCK = _STUDIO | {
    32: Shape((4, 4, 4, 4), (4, 4, 4, 4), 2),
    64: Shape((16, 16, 8, 4, 2), (1, 2, 4, 8, 16), 4),
}


class Generator(nn.Module):
    """BigGAN's generator: z_BZ (and y_B) to x_BCHW in [-1, 1]. model: name in messages."""

    model: str

    def __init__(self, options: BigGANOptions, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        classes = effective_num_classes(options.conditional, num_classes, self.model)
        self.num_classes = classes
        self.weight_init = options.weight_init
        plan = _plan(options, shape, self.model)
        num_blocks = len(plan.g_widths) - 1
        each = latent_per_block(options.latent, num_blocks, _LATENT_PER_BLOCK, self.model)
        self.latent = each * len(plan.g_widths)
        last: nn.Module = NormImageOutput(plan.g_widths[-1], shape[0], spectral_norm)
        if classes and not options.shared:
            stem = Stem(self.latent, plan.g_widths[0], spectral_norm, plan.lowest)
            blocks = [stem, *_residual.up_blocks(plan, classes, spectral_norm)]
        else:
            blocks = _vector_blocks(plan, each, classes, options.shared)
            last = WithoutVector(last, last=True)
        self.blocks = nn.ModuleList([*blocks, last])

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        return run_blocks(self.blocks, z_BZ, y_B)


class Discriminator(nn.Module):
    """BigGAN's discriminator: x_BCHW (and y_B) to a `DiscriminatorOutput`.

    model: name in messages. head: returns the last block for (features, classes).
    """

    model: str

    def __init__(
        self,
        options: BigGANOptions,
        shape: tuple[int, int, int],
        num_classes: int,
        head: Callable[[int, int], nn.Module],
    ) -> None:
        super().__init__()
        classes = effective_num_classes(options.conditional, num_classes, self.model)
        self.weight_init = options.weight_init
        plan = _plan(options, shape, self.model)
        downs = _residual.down_blocks(plan, shape[0])
        self.blocks = nn.ModuleList([*downs, head(plan.d_widths[-1], classes)])

    def forward(self, x_BCHW: Tensor, y_B: Tensor | None = None) -> DiscriminatorOutput:
        return DiscriminatorOutput.of(run_blocks(self.blocks, x_BCHW, y_B))


def _plan(options: BigGANOptions, shape: tuple[int, int, int], model: str) -> ResidualPlan:
    side = image_side(shape, model, 1024)
    rows = _BROCK if options.flavour == "brock" else _STUDIO
    has_attention = options.flavour == "studio" or side > 32
    default = _residual.largest_map(side // 2) if has_attention else None
    large = _residual.shape_at(rows, side)
    return _residual.residual_plan(options, large, side, options.width, default)


def _vector_blocks(plan: ResidualPlan, each: int, classes: int, shared: int) -> list[nn.Module]:
    """Return blocks that read the class embedding and a part of z each, the stem the first part."""
    point = shared if classes else 0
    norm = vector_norm(point + each, spectral_norm)
    entry = LatentEntry(each, plan.g_widths[0], classes, shared, spectral_norm, side=plan.lowest)
    first = map(WithoutVector, _residual.first_attention(plan, spectral_norm))
    blocks: list[nn.Module] = [entry, *first]
    for number, (a, b) in enumerate(pairwise(plan.g_widths), start=1):
        columns = slice(point + number * each, point + (number + 1) * each)
        blocks.append(WithVector(UpBlock(a, b, norm, spectral_norm), slice(point), columns))
        if plan.lowest << number in plan.g_attention:
            blocks.append(WithoutVector(SelfAttention(b, spectral_norm)))
    return blocks
