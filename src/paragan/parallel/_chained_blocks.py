"""Blocks of a network whose calls are replaced: by a pipeline, or by a measurement."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.layers.blocks import BlockRunner


class ChainedBlocks(nn.ModuleList, BlockRunner):
    """Replacement of `net.blocks`, whatever way the network calls them: whole, in slices, or one by one.

    takes_labels: whether a block is called with labels, too, as members of an `nn.Sequential` are not.
    """

    def __init__(self, blocks: nn.ModuleList | nn.Sequential) -> None:
        super().__init__()
        self.takes_labels = isinstance(blocks, nn.ModuleList)

    @abstractmethod
    def run_range(self, h: Any, y_B: Tensor | None, numbers: range) -> Any:
        """Run consecutive blocks."""

    def run(self, h: Any, y_B: Tensor | None = None) -> Any:
        """Run all blocks."""
        return self.run_range(h, y_B, range(len(self)))

    def forward(self, h: Any, y_B: Tensor | None = None) -> Any:
        """Run all blocks."""
        return self.run(h, y_B)

    def call(self, block: nn.Module, h: Any, y_B: Tensor | None) -> Any:
        """Call one block."""
        return block(h, y_B) if self.takes_labels else block(h)

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
    """Consecutive blocks of a chain."""

    def __init__(self, blocks: ChainedBlocks, numbers: range) -> None:
        if numbers.step != 1:
            raise ConfigError("blocks can be called in their order only; slice them without a step")
        self._blocks = blocks
        self._numbers = numbers

    def __call__(self, h: Any, y_B: Tensor | None = None) -> Any:
        return self.run(h, y_B)

    def run(self, h: Any, y_B: Tensor | None = None) -> Any:
        """Run these blocks."""
        return self._blocks.run_range(h, y_B, self._numbers)
