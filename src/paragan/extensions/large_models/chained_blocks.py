"""Blocks of a network whose calls are replaced: by a pipeline, or to estimate their work."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.layers.blocks import BlockRunner


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
