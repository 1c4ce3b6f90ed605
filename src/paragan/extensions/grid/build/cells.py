"""Construction of one cell of a grid: its options, game, batches and losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from paragan import build
from paragan.build.data import Data, batch_stream
from paragan.config import RunConfig
from paragan.config.grid_options import CellPlayerOptions
from paragan.core import rng
from paragan.core.capabilities import GRID, check_capabilities
from paragan.core.errors import ConfigError
from paragan.core.loss import Loss
from paragan.core.option_types import Choice
from paragan.extensions.grid.cell import Cell, RandomOpponent
from paragan.extensions.grid.data_shares import ClassSubsetPrior, DataShares
from paragan.game.gan import GAN
from paragan.game.needs import game_needs
from paragan.game.options import PlayerOptions
from paragan.game.player import Player


def build_cell(
    config: RunConfig, number: int, data: Data, device: torch.device, data_shares: DataShares, losses: Sequence[Loss]
) -> Cell:
    """Build a cell; the first has the run's seed, so that one cell equals a run without a grid."""
    assert config.grid is not None
    options = config.grid
    cell = options.of_cell(number)
    seed = config.seed if number == 0 else rng.key(config.seed, "cell", number)
    g = player_options(config.g, cell.g)
    d = player_options(config.d, cell.d)
    cell_config = replace(config, seed=seed, loss=cell.loss or config.loss, g=g, d=d)
    gan = _build_game(cell_config, number, data, device)
    loss = 0 if cell.loss is None else grid_losses(config).index(cell.loss)
    gan.loss = losses[loss]
    if classes := data_shares.classes(number):
        gan.prior = ClassSubsetPrior.of(gan.prior, classes)
    if options.opponents == "random":
        assert isinstance(gan.g, Player) and isinstance(gan.d, Player)
        gan = replace(gan, g=RandomOpponent(gan.g), d=RandomOpponent(gan.d))
    batches = batch_stream(config, data_shares.of(number), seed, device, flip=data.flip, is_automatic=False)
    drawn = losses[: len(options.losses)] if cell.loss is None else ()
    return Cell(number=number, gan=gan, scheme=build.scheme(cell_config), batches=batches, losses=drawn, loss=loss)


def _build_game(config: RunConfig, number: int, data: Data, device: torch.device) -> GAN:
    assert config.grid is not None
    try:
        game = build.gan(config, data, device)
        check_capabilities(GRID, game_needs(game))
        return game
    except ConfigError as error:
        is_named = "grid.cells." in str(error)
        if is_named or not any(number in cell.at for cell in config.grid.cells):
            raise
        raise ConfigError(f"grid.cells, cell {number}: {error}") from None


def grid_losses(config: RunConfig) -> list[Choice]:
    """Return all losses of a grid: those drawn (or the run's), then those of single cells."""
    assert config.grid is not None
    losses = [*(config.grid.losses or (config.loss,))]
    for cell in config.grid.cells:
        if cell.loss is not None and cell.loss not in losses:
            losses.append(cell.loss)
    return losses


def player_options(options: PlayerOptions, cell: CellPlayerOptions | None) -> PlayerOptions:
    """Return the run's options of a player, with the cell's learning rate."""
    if cell is None or cell.lr is None:
        return options
    return replace(options, optimizer=replace(options.optimizer, lr=cell.lr))
