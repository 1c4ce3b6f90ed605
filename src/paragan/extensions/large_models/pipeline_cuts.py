"""Chains of blocks, and their cuts into pipeline stages by the estimated work of each block.

A cut is the number of the block that begins a stage: of 5 blocks, cuts (2, 4) make the stages 0-1, 2-3 and 4.
Blocks run on the meta device, so the estimate needs no memory and is equal on every machine: all ranks find
the same cuts without a message, and a resumed run finds them again.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from paragan.core.errors import ConfigError
from paragan.core.tree import map_tensors
from paragan.layers.blocks import BlockRunner

# Attention, norms and activations wait for memory instead of computing. Of 8 to 128 operations for each byte that
# an operator writes, with 32 the shares of the blocks of seven networks came closest to measured times on a CPU core.
_OPERATIONS_PER_BYTE = 32
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
    _check_stages(len(costs), stages)
    ends = list(accumulate((cost.work for cost in costs), initial=0.0))

    def longest(value: float, first: int, stop: int) -> float:
        return max(value, ends[stop] - ends[first])

    # two passes: the least possible longest stage, then the fewest bytes among cuts that are nearly as good
    limit = _min_value(len(costs), stages, 0.0, longest) * (1 + tolerance)

    def bytes_and_cuts(value: tuple[float, tuple[int, ...]], first: int, stop: int) -> tuple[float, tuple[int, ...]]:
        if ends[stop] - ends[first] > limit:
            return math.inf, ()
        return (value[0] + costs[first - 1].output_bytes, (*value[1], first)) if first else value

    cuts: tuple[int, ...] = _min_value(len(costs), stages, (0, ()), bytes_and_cuts)[1]
    return cuts


def check_cuts(cuts: Sequence[int], num_blocks: int, stages: int) -> None:
    """Raise `ConfigError` for cuts by hand that do not make so many stages with a block each."""
    _check_stages(num_blocks, stages)
    edges = (0, *cuts, num_blocks)
    if len(cuts) != stages - 1 or any(first >= stop for first, stop in pairwise(edges)):
        raise ConfigError(
            f"cuts {list(cuts)} do not divide {num_blocks} blocks into {stages} stages; pass {stages - 1} "
            f"increasing block numbers from 1 to {num_blocks - 1}, or leave them out"
        )


def _min_value(num_blocks: int, stages: int, start: Any, extend: Callable[[Any, int, int], Any]) -> Any:
    """Return the least value of `num_blocks` blocks in `stages` stages.

    start: value of no blocks. extend(value, first, stop): value with blocks first to stop - 1 as one
    more stage; it does not decrease with `value`.
    """
    # Only the best value of each prefix is needed, as `extend` does not decrease with it (Bellman's principle).
    values = {0: start}  # of the first blocks, by their number
    for num_after in reversed(range(stages)):  # stages that follow, each of which needs a block
        longer = {}
        for stop in range(stages - num_after, num_blocks - num_after + 1):
            longer[stop] = min(extend(value, first, stop) for first, value in values.items() if first < stop)
        values = longer
    return values[num_blocks]


def _check_stages(num_blocks: int, stages: int) -> None:
    if not 1 <= stages <= num_blocks:
        raise ConfigError(f"{num_blocks} blocks cannot make {stages} stages; pass 1 to {num_blocks} stages")


class ChainedBlocks(nn.ModuleList, BlockRunner):
    """Replacement of `net.blocks`, which a network may call whole, in slices or one by one."""

    @abstractmethod
    def run_range(self, h: Any, labels: Sequence[Tensor | None], numbers: range) -> Any:
        """Run consecutive blocks. labels: further arguments of each, without a gradient."""

    def run(self, h: Any, y_B: Tensor | None = None) -> Any:
        """Run all blocks, each as `block(h, y_B)`."""
        return self(h, y_B)

    def forward(self, h: Any, *labels: Tensor | None) -> Any:
        """Run all blocks, each as `block(h, *labels)`."""
        return self.run_range(h, labels, range(len(self)))

    def __iter__(self) -> Iterator[Any]:
        """Yield the blocks, to be called one by one."""
        return (self[number] for number in range(len(self)))

    def __getitem__(self, index: int | slice) -> Any:
        """Return a block, or consecutive ones, to be called."""
        numbers = range(len(self))
        if isinstance(index, slice):
            return _SomeBlocks(self, numbers[index])
        return _SomeBlocks(self, range(numbers[index], numbers[index] + 1))


class _SomeBlocks(BlockRunner):
    """Consecutive blocks of a chain, as a network calls them."""

    def __init__(self, blocks: ChainedBlocks, numbers: range) -> None:
        if numbers.step != 1:
            raise ConfigError("blocks can be called in their order only; slice them without a step")
        self._blocks = blocks
        self._numbers = numbers

    def __call__(self, h: Any, *labels: Tensor | None) -> Any:
        return self._blocks.run_range(h, labels, self._numbers)

    def run(self, h: Any, y_B: Tensor | None = None) -> Any:
        """Run these blocks."""
        return self(h, y_B)


def block_costs(net: nn.Module, inputs: Sequence[Tensor | None]) -> list[BlockCost]:
    """Return the cost of each block of a network on the meta device that is called with these inputs.

    Changes the network, which is of no further use.
    """
    costed = _CostedBlocks(net.blocks.children())  # type: ignore[operator, union-attr]
    net.blocks = costed
    inputs = list(inputs)
    while inputs and inputs[-1] is None:  # networks need not take optional arguments, such as labels
        inputs.pop()
    net(*inputs)
    return costed.costs


class _CostedBlocks(ChainedBlocks):
    """Blocks that add the cost of each block to `costs` when it is called."""

    def __init__(self, blocks: Any) -> None:
        super().__init__(blocks)
        self.costs: list[BlockCost] = []

    def run_range(self, h: Any, labels: Sequence[Tensor | None], numbers: range) -> Any:
        for block in list(self.children())[numbers.start : numbers.stop]:
            written = _BytesWritten()
            with FlopCounterMode(display=False) as counter, written:
                h = block(h, *labels)
            tensors = _tensors(h)
            output_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors) // len(tensors[0])
            work = counter.get_total_flops() + _OPERATIONS_PER_BYTE * written.num_bytes
            self.costs.append(BlockCost(work, output_bytes))
        return h


class _BytesWritten(TorchDispatchMode):
    """Counts the bytes of what operators return, except views."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        # a view writes nothing: its input's bytes would count twice
        is_view = any(out.alias_info is not None and not out.alias_info.is_write for out in func._schema.returns)
        for tensor in () if is_view else _tensors(output):
            self.num_bytes += tensor.numel() * tensor.element_size()
        return output


def _tensors(value: Any) -> list[Tensor]:
    """Return the tensors of a nest of tuples, lists and maps."""
    tensors: list[Tensor] = []

    def append(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    map_tensors(append, value)
    return tensors
