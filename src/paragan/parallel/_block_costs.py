"""Cost of each block of a network, to divide the blocks between the ranks of a pipeline.

Blocks run one at a time, forward and backward, so that a network that does not fit can be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from paragan.core.tree import map_tensors
from paragan.parallel._chained_blocks import ChainedBlocks
from paragan.parallel._pipeline_cuts import BlockCost

# Of 8 to 128, with which the shares of the blocks of seven networks came closest to measured times on a CPU core.
_OPERATIONS_PER_BYTE = 32

Cost = Callable[[nn.Module, Callable[[nn.Module], Any]], tuple[float, float, Any]]
"""(block, call of it with its inputs) to (forward, forward and backward, what it returned)."""


def block_costs(net: nn.Module, inputs: Sequence[Tensor | None], cost: Cost) -> list[BlockCost]:
    """Return the cost of each block of a network, on the meta device, that is called with these inputs.

    Changes the network, which is of no further use.
    """
    costed = _CostedBlocks(net.blocks, cost)  # type: ignore[arg-type]
    net.blocks = costed
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    net(*given)
    return costed.found


def estimate_work(block: nn.Module, call: Callable[[nn.Module], Any]) -> tuple[float, float, Any]:
    """Return operations, without data: equal on every machine. A backward has twice those of a forward.

    Multiplications and additions of convolutions and products, and for each byte that any operator
    writes `_OPERATIONS_PER_BYTE`: attention, norms and activations wait for memory.
    """
    written = _BytesWritten()
    with FlopCounterMode(display=False) as counter, written:
        output = call(block)
    forward = counter.get_total_flops() + _OPERATIONS_PER_BYTE * written.num_bytes
    return forward, 3 * forward, output


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


def measure_seconds(synchronized_time: Callable[[], float], device: torch.device, repetitions: int = 3) -> Cost:
    """Return a cost in seconds on a device: the least of some repetitions."""

    def measure(block: nn.Module, call: Callable[[nn.Module], Any]) -> tuple[float, float, Any]:
        here = deepcopy(block).to_empty(device=device)
        with torch.no_grad():
            for tensor in (*here.parameters(), *(b for b in here.buffers() if b.is_floating_point())):
                tensor.uniform_(-0.1, 0.1)
        found = []
        for _ in range(repetitions + 1):
            start = synchronized_time()
            output = call(here)
            forward = synchronized_time() - start
            roots = [tensor for tensor in _tensors(output) if tensor.requires_grad]
            torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
            found.append((synchronized_time() - start, forward))
        seconds, forward = min(found[1:])
        return forward, seconds, output

    return measure


class _CostedBlocks(ChainedBlocks):
    """Blocks that record their costs."""

    def __init__(self, blocks: nn.ModuleList | nn.Sequential, cost: Cost) -> None:
        super().__init__(blocks.children())
        self.found: list[BlockCost] = []
        self._cost = cost

    def run_range(self, h: Any, labels: Sequence[Tensor | None], numbers: range) -> Any:
        for block in list(self.children())[numbers.start : numbers.stop]:
            h = map_tensors(_leaf, h)
            forward, seconds, output = self._cost(block, lambda block, h=h: block(h, *labels))  # type: ignore[misc]
            tensors = _tensors(output)
            num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors) // len(tensors[0])
            self.found.append(BlockCost(seconds, num_bytes, forward))
            h = output
        return h


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.is_floating_point())


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []

    def take(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(take, value)
    return found
