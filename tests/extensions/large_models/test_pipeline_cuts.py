"""Cuts into pipeline stages, against all cuts there are, and estimated costs of blocks."""

import itertools

import pytest
import torch
from torch import nn

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.types import Rows
from paragan.extensions.large_models.pipeline_cuts import BlockCost, balanced_cuts, block_costs, check_cuts
from paragan.layers.blocks import run_blocks


def drawn(number: int, seed: int, most: int = 6) -> list[BlockCost]:
    """Blocks with small whole numbers as work and bytes, so that there are ties."""
    values = (
        rng.uniform(seed, name, Rows(step=0, first=0, count=number, total=number), (1,)).flatten().tolist()
        for name in ("s", "b")
    )
    return [BlockCost(float(1 + int(most * s)), 1 + int(9 * b)) for s, b in zip(*values, strict=True)]


def longest(costs: list[BlockCost], cuts: tuple[int, ...]) -> float:
    edges = itertools.pairwise((0, *cuts, len(costs)))
    return max(sum(cost.work for cost in costs[first:stop]) for first, stop in edges)


def sent(costs: list[BlockCost], cuts: tuple[int, ...]) -> int:
    return sum(costs[cut - 1].output_bytes for cut in cuts)


@pytest.mark.parametrize("tolerance", [0.0, 0.3])
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", range(12))
def test_balanced_cuts_of_random_blocks_are_the_best_of_all(stages, seed, tolerance):
    costs = drawn(7, seed)
    every = list(itertools.combinations(range(1, len(costs)), stages - 1))
    limit = min(longest(costs, cuts) for cuts in every) * (1 + tolerance)
    allowed = [cuts for cuts in every if longest(costs, cuts) <= limit]
    found = balanced_cuts(costs, stages, tolerance)
    assert found in allowed
    assert sent(costs, found) == min(sent(costs, cuts) for cuts in allowed)


@pytest.mark.parametrize("stages", [0, 4])
def test_balanced_cuts_for_other_than_one_to_all_blocks_is_refused(stages):
    with pytest.raises(ConfigError, match=f"3 blocks cannot make {stages} stages; pass 1 to 3 stages"):
        balanced_cuts(drawn(3, 0), stages)


@pytest.mark.parametrize("cuts", [(), (0,), (5,), (2, 3), (-1,)])
def test_invalid_cuts_by_hand_are_refused(cuts):
    with pytest.raises(ConfigError, match="do not divide 5 blocks into 2 stages; pass 1 increasing"):
        check_cuts(cuts, 5, 2)


@pytest.mark.parametrize("cuts", [(2, 2), (3, 1)])
def test_cuts_by_hand_that_do_not_increase_are_refused(cuts):
    with pytest.raises(ConfigError, match="do not divide 5 blocks into 3 stages"):
        check_cuts(cuts, 5, 3)


def test_cuts_by_hand_with_a_block_in_each_stage_are_accepted():
    check_cuts((1, 4), 5, 3)
    check_cuts((), 5, 1)


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
