"""A network of many blocks, for a pipeline of four stages."""

import torch.nn.functional as F
from torch import Tensor, nn

from paragan.layers.blocks import run_blocks
from paragan.layers.spectral_norm import spectral_norm

BLOCKS, WIDTH, CLASSES = 8, 6, 3


class Block(nn.Module):
    """A linear layer with spectral norm, and the class of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = spectral_norm(nn.Linear(WIDTH, WIDTH))
        self.table = nn.Embedding(CLASSES, WIDTH)

    def forward(self, h: Tensor, y_B: Tensor) -> Tensor:
        return F.silu(self.linear(h) + self.table(y_B)) + h


class Deep(nn.Module):
    """Eight blocks, and a last layer. outputs: 1 for a discriminator."""

    latent = WIDTH
    weight_init = "orthogonal"

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.last = nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor, y_B: Tensor) -> Tensor:
        out = self.last(run_blocks(self.blocks, x, y_B))
        return out.squeeze(1) if out.shape[1] == 1 else out
