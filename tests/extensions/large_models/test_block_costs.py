"""Estimated costs of the blocks of a network."""

import torch
from torch import nn

from paragan.extensions.large_models.pipeline_cuts import block_costs
from paragan.layers.blocks import run_blocks

ROWS = 4


class Wide(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(8, width)

    def forward(self, h, y=None):
        return self.linear(h[:, :8]).relu()


class Net(nn.Module):
    """Calls its first block alone, and the others as a slice."""

    def __init__(self, *widths: int):
        super().__init__()
        self.blocks = nn.ModuleList(map(Wide, widths))

    def forward(self, x, y=None):
        return run_blocks(self.blocks[1:], self.blocks[0](x, y), y)


def test_work_is_multiplications_additions_and_bytes_written():
    with torch.device("meta"):
        net = Net(8, 32)
    found = block_costs(net, (torch.empty(ROWS, 8, device="meta"), None))
    for cost, width in zip(found, (8, 32), strict=True):
        operations = 2 * ROWS * 8 * width + 32 * 2 * 4 * ROWS * width  # the product and its ReLU, float32
        assert cost.work == operations
        assert cost.output_bytes == 4 * width
