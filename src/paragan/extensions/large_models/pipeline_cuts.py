"""Cuts of a chain of blocks into pipeline stages.

A cut is the number of the block that begins a stage: of 5 blocks, cuts (2, 4) make the stages 0-1, 2-3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from paragan.core.errors import ConfigError

NEARLY_EQUAL = 0.02  # share by which the work of the longest stage may exceed the least possible, for fewer bytes


@dataclass(frozen=True)
class BlockCost:
    """Cost of one block.

    work: any measure of its time. output_bytes: of a sample; a cut after the block sends them in a
    forward, and receives as many in a backward.
    """

    work: float
    output_bytes: int


def balanced_cuts(costs: Sequence[BlockCost], stages: int, tolerance: float = 0.0) -> tuple[int, ...]:
    """Return the cuts with the shortest longest stage; ties are broken by the bytes at the cuts.

    tolerance: cuts whose longest stage takes up to this share longer count as ties, because work is
    an estimate. Dynamic programming over the first blocks; raises `ConfigError` for more stages
    than blocks.
    """
    _refuse_too_many(len(costs), stages)
    ends = list(accumulate((cost.work for cost in costs), initial=0.0))

    def longest(value: float, first: int, stop: int) -> float:
        return max(value, ends[stop] - ends[first])

    limit = _least(len(costs), stages, 0.0, longest) * (1 + tolerance)

    def bytes_and_cuts(value: tuple[float, tuple[int, ...]], first: int, stop: int) -> tuple[float, tuple[int, ...]]:
        if ends[stop] - ends[first] > limit:
            return math.inf, ()
        return (value[0] + costs[first - 1].output_bytes, (*value[1], first)) if first else value

    cuts: tuple[int, ...] = _least(len(costs), stages, (0, ()), bytes_and_cuts)[1]
    return cuts


def refuse_invalid_cuts(cuts: Sequence[int], num_blocks: int, stages: int) -> None:
    """Raise `ConfigError` for cuts by hand that do not make so many stages with a block each."""
    _refuse_too_many(num_blocks, stages)
    edges = (0, *cuts, num_blocks)
    if len(cuts) != stages - 1 or any(first >= stop for first, stop in pairwise(edges)):
        raise ConfigError(
            f"cuts {list(cuts)} do not divide {num_blocks} blocks into {stages} stages; pass {stages - 1} "
            f"increasing block numbers from 1 to {num_blocks - 1}, or leave them out"
        )


def _least(num_blocks: int, stages: int, start: Any, extend: Callable[[Any, int, int], Any]) -> Any:
    """Return the least value of `num_blocks` blocks in `stages` stages.

    start: value of no blocks. extend(value, first, stop): value with blocks first to stop - 1 as one
    more stage; it does not decrease with `value`.
    """
    least = {0: start}
    for after in reversed(range(stages)):  # stages that follow, each of which needs a block
        stops = range(stages - after, num_blocks - after + 1)
        least = {
            stop: min(extend(value, first, stop) for first, value in least.items() if first < stop) for stop in stops
        }
    return least[num_blocks]


def _refuse_too_many(num_blocks: int, stages: int) -> None:
    if not 1 <= stages <= num_blocks:
        raise ConfigError(f"{num_blocks} blocks cannot make {stages} stages; pass 1 to {num_blocks} stages")
