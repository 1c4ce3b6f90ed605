"""Options of one cell: the run's, with what `grid.cells` changes for this cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paragan.coevolution.options import CellPlayerOptions
from paragan.config import RunConfig
from paragan.core.option_types import Choice
from paragan.core.types import Side
from paragan.game.options import PlayerOptions

OptimizerKind = tuple[str, dict[str, Any]]


def grid_losses(config: RunConfig) -> list[Choice]:
    """Return all losses of a grid: those drawn (or the run's), then those of single cells."""
    assert config.grid is not None
    losses = [*(config.grid.losses or (config.loss,))]
    for cell in config.grid.cells:
        if cell.loss is not None and cell.loss not in losses:
            losses.append(cell.loss)
    return losses


def player_options(options: PlayerOptions, cell: CellPlayerOptions | None) -> PlayerOptions:
    """Return the run's options of a player, with the cell's optimiser or learning rate."""
    if cell is None:
        return options
    optimizer = cell.optimizer or options.optimizer
    return replace(options, optimizer=replace(optimizer, lr=cell.lr or optimizer.lr))


def optimizer_kind(config: RunConfig, side: Side, number: int) -> OptimizerKind:
    """Return the optimiser of a cell's player and its arguments, without the learning rate."""
    assert config.grid is not None
    cell = config.grid.of_cell(number)
    player = player_options(config.g, cell.g) if side is Side.G else player_options(config.d, cell.d)
    return player.optimizer.name, player.optimizer.arguments


def have_same_optimizer(kind: Callable[[Side, int], OptimizerKind], side: Side, a: int, b: int) -> bool:
    """Return whether one cell's optimiser state fits the other's optimiser."""
    return a == b or kind(side, a) == kind(side, b)
