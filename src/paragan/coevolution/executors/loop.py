"""Reference executor: trains one cell after another, each for all its batches.

Cells are independent while they train, and the weights of one cell stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from paragan.coevolution.cell import Cell


class LoopExecutor:
    """`coevolution.population.Executor` that every other executor must equal."""

    def train(
        self, cells: Sequence[Cell], num_batches: int, loss_of: Callable[[Cell, int], int]
    ) -> dict[int, dict[str, Tensor]]:
        """Train each cell for `num_batches` steps; returns the last scalars by cell."""
        scalars: dict[int, dict[str, Tensor]] = {}
        for cell in cells:
            scalars[cell.number] = {}
            for batch in range(num_batches):
                scalars[cell.number] |= cell.train_step(loss_of(cell, batch)).scalars
        return scalars
