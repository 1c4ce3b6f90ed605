"""Construction of the cells of a grid in one process, and of what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from paragan import build
from paragan.build import evaluation
from paragan.config import RunConfig
from paragan.config.grid_options import GridOptions
from paragan.core.capabilities import GRID, Capability, Need, check_capabilities
from paragan.core.loss import Loss
from paragan.core.network_factory import NetworkFactory
from paragan.core.types import Side
from paragan.evaluation.evaluator import Evaluator
from paragan.extensions.grid.build.cells import build_cell, grid_losses
from paragan.extensions.grid.build.fitness import fitness_evaluator, opponent_network
from paragan.extensions.grid.cell import Cell
from paragan.extensions.grid.data_shares import DataShares
from paragan.extensions.grid.executors.choice import select_executor
from paragan.extensions.grid.genome import EvalNetwork
from paragan.extensions.grid.mixture import MixtureScorer
from paragan.extensions.grid.population import Population
from paragan.extensions.grid.topology import topology_of
from paragan.game.prior import Prior
from paragan.hardware import device as devices


@dataclass(frozen=True, kw_only=True)
class GridFactory:
    """Factory of the cells of one process, with what they share.

    generator: network for samples and scores. losses: of all cells, drawn ones first. judge: scores
    mixtures; None: no scores.
    """

    config: RunConfig
    options: GridOptions
    data: build.Data
    device: torch.device
    makers: Mapping[Side, NetworkFactory]
    generator: EvalNetwork
    prior: Prior
    losses: Sequence[Loss]
    data_shares: DataShares
    judge: Callable[[], Evaluator] | None

    @classmethod
    def of(
        cls,
        config: RunConfig,
        folder: Path,
        say: Callable[[str], None],
        must_keep: bool = True,
        device: torch.device | None = None,
        stop: Callable[[], bool] = lambda: False,
        data: build.Data | None = None,
    ) -> GridFactory:
        """Build what cells share.

        device: None: chosen as for any run. stop: as in `ExtractorContext`. data: None: opened as
        the config says. Raises `ConfigError` for settings that a grid does not support.
        """
        assert config.grid is not None
        check_capabilities(build.scheme(config).holder, config.needs)
        device = device or devices.select_device(config.train.threads)
        data = data or build.open_data(config)
        check_capabilities(GRID, [Need("data of pairs", Capability.PAIRS, "use other data")] * data.has_pairs)
        makers = {side: build.network_factory(config, side, data, device) for side in Side}
        judge = evaluation.evaluator(
            config,
            evaluation.extractor_context(data, folder, say, device, must_save=must_keep, stop=stop),
        )
        generator = EvalNetwork(makers[Side.G]())
        return cls(
            config=config,
            options=config.grid,
            data=data,
            device=device,
            makers=makers,
            generator=generator,
            prior=build.prior(config, data, device, {Side.G: generator.net}),
            losses=[build.adversarial(chosen) for chosen in grid_losses(config)],
            data_shares=DataShares(config.grid, data.train, config.seed),
            judge=judge,
        )

    def cell(self, number: int) -> Cell:
        """Build cell `number`."""
        return build_cell(self.config, number, self.data, self.device, self.data_shares, self.losses)

    def population(self, cells: Sequence[Cell], say: Callable[[str], None]) -> Population:
        """Build a population of some cells of the grid."""
        eval_networks = {side: EvalNetwork(self.makers[side](), cells[0].players[side].calling) for side in Side}
        judge = self.judge
        return Population(
            seed=self.config.seed,
            options=self.options,
            cells=cells,
            topology=topology_of(self.options),
            make_evaluator=partial(
                fitness_evaluator, self.options, self.data.train, self.data_shares, self.prior, eval_networks
            ),
            executor=select_executor(self.options, cells, self.config.train.batch, say),
            mixture_scorer=judge and MixtureScorer(self.generator, judge, self.prior, self.options.mixture.num_images),
            opponent=partial(opponent_network, self.makers, cells[0]),
        )

    @property
    def are_scored(self) -> bool:
        """Whether mixtures are scored."""
        return self.judge is not None and self.options.mixture.num_images > 0
