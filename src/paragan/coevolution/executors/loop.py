"""The executor that every other one has to equal: one cell after another, each for all its batches.

Cells know nothing of one another while they train, and one cell's weights stay in the cache meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from paragan.coevolution.cell import Cell


class LoopExecutor:
    """Fulfils `coevolution.population.Executor`."""

    def train(
        self, cells: Sequence[Cell], num_batches: int, loss_of: Callable[[Cell, int], int]
    ) -> dict[int, dict[str, Tensor]]:
        """Play so many steps in each; the last numbers by cell. loss_of: which of its losses a step is for."""
        told: dict[int, dict[str, Tensor]] = {}
        for cell in cells:
            told[cell.number] = {}
            for batch in range(num_batches):
                told[cell.number] |= cell.train_step(loss_of(cell, batch)).scalars
        return told
