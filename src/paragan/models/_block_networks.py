"""Base classes of models that run a list of blocks."""

from torch import Tensor, nn

from paragan.core.outputs import DiscriminatorOutput
from paragan.layers.blocks import run_blocks
from paragan.models._checks import effective_num_classes
from paragan.models._options import NetworkOptions, WeightInit


class BlockNetwork(nn.Module):
    """Network of `blocks`, which a subclass sets. weight_init: scheme of the initial weights."""

    blocks: nn.ModuleList
    weight_init: WeightInit = "torch"

    def __init__(self, options: NetworkOptions, num_classes: int) -> None:
        super().__init__()
        self.num_classes = effective_num_classes(options.conditional, num_classes)


class BlockGenerator(BlockNetwork):
    """Generator that runs `blocks`: z_BZ (and y_B) to x_BCHW. latent: length of z, which a subclass sets."""

    latent: int

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        return run_blocks(self.blocks, z_BZ, y_B)


class BlockDiscriminator(BlockNetwork):
    """Discriminator that runs `blocks`: x_BCHW (and y_B) to its output."""

    def forward(self, x_BCHW: Tensor, y_B: Tensor | None = None) -> DiscriminatorOutput:
        return DiscriminatorOutput.of(run_blocks(self.blocks, x_BCHW, y_B))
