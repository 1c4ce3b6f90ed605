"""Estimated work of each block of a network, to divide the blocks between the ranks of a pipeline.

Blocks run on the meta device, so the estimate needs no memory and is equal on every machine: all ranks find
the same cuts without a message, and a resumed run finds them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from paragan.core.tree import map_tensors
from paragan.extensions.large_models.chained_blocks import ChainedBlocks
from paragan.extensions.large_models.pipeline_cuts import BlockCost

# Attention, norms and activations wait for memory instead of computing. Of 8 to 128 operations for each byte that
# an operator writes, with 32 the shares of the blocks of seven networks came closest to measured times on a CPU core.
_OPERATIONS_PER_BYTE = 32


def block_costs(net: nn.Module, inputs: Sequence[Tensor | None]) -> list[BlockCost]:
    """Return the cost of each block of a network on the meta device that is called with these inputs.

    Changes the network, which is of no further use.
    """
    costed = _CostedBlocks(net.blocks.children())  # type: ignore[operator, union-attr]
    net.blocks = costed
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    net(*given)
    return costed.found


class _CostedBlocks(ChainedBlocks):
    """Blocks that record their costs."""

    def __init__(self, blocks: Any) -> None:
        super().__init__(blocks)
        self.found: list[BlockCost] = []

    def run_range(self, h: Any, labels: Sequence[Tensor | None], numbers: range) -> Any:
        for block in list(self.children())[numbers.start : numbers.stop]:
            written = _BytesWritten()
            with FlopCounterMode(display=False) as counter, written:
                h = block(h, *labels)
            tensors = _tensors(h)
            output_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors) // len(tensors[0])
            work = counter.get_total_flops() + _OPERATIONS_PER_BYTE * written.num_bytes
            self.found.append(BlockCost(work, output_bytes))
        return h


class _BytesWritten(TorchDispatchMode):
    """Counts the bytes of what operators return, except views."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        is_view = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
        for tensor in () if is_view else _tensors(output):
            self.num_bytes += tensor.numel() * tensor.element_size()
        return output


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []

    def take(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(take, value)
    return found
