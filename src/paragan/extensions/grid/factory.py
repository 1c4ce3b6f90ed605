"""Construction of the cells of a grid in one process, and of what they share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch

from paragan import build
from paragan.build import evaluation
from paragan.build.batches import batch_stream
from paragan.config import RunConfig, choose
from paragan.config.grid_options import CellPlayerOptions
from paragan.core import rng
from paragan.core.capabilities import GRID, Capability, Need, check_capabilities
from paragan.core.errors import ConfigError
from paragan.core.option_types import Choice
from paragan.core.types import Batch, Rows, Side
from paragan.evaluation.score import FailureLog, Score
from paragan.evaluation.scorer import extractor_name
from paragan.extensions.grid.cell import Cell, RandomOpponent
from paragan.extensions.grid.data_shares import DataShares, with_classes
from paragan.extensions.grid.executors.choice import select_executor
from paragan.extensions.grid.fitness import FitnessEvaluator
from paragan.extensions.grid.genome import EvalNetwork, Genome
from paragan.extensions.grid.mixture import MixtureScorer
from paragan.extensions.grid.population import Population
from paragan.extensions.grid.topology import topology_of
from paragan.game.gan import GAN
from paragan.game.mixture import Mixture, mixture_of
from paragan.game.needs import game_needs
from paragan.game.network import CalledNetwork
from paragan.game.options import PlayerOptions
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.hardware import device as devices
from paragan.loading.normalise import normalise_images
from paragan.loading.order import Order
from paragan.metrics import fd


class GridFactory:
    """Factory of the cells of one process, with what they share.

    device: None: chosen as for any run. stop: as in `ExtractorContext`. Raises `ConfigError` for
    settings that a grid does not support.

    generator: network for samples and scores. losses: of all cells, drawn ones first. judge: of mixtures, or None.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        log: Callable[[str], None],
        must_keep: bool = True,
        device: torch.device | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        assert config.grid is not None
        check_capabilities(build.scheme(config).holder, config.needs)
        self.config = config
        self.options = config.grid
        self.device = device = device or devices.select_device(config.train.threads)
        self.data = data = build.open_data(config)
        if data.train.has_pairs:
            check_capabilities(GRID, [Need("data of pairs", Capability.PAIRS, "use other data")])
        self.factories = {side: build.network_factory(config, side, data.train, device) for side in Side}
        context = evaluation.extractor_context(data, folder, log, device, must_save=must_keep, stop=stop)
        self.judge = evaluation.evaluator(config, context)
        self.failures = FailureLog(log)  # of the judge
        self.generator = EvalNetwork(self.factories[Side.G]())
        self.prior = build.prior(config, data, device, {Side.G: self.generator.net})
        self.losses = [build.adversarial(chosen) for chosen in grid_losses(config)]
        self.data_shares = DataShares(self.options, data.train, config.seed)

    def cell(self, number: int) -> Cell:
        """Build a cell; the first has the run's seed, so that one cell equals a run without a grid."""
        cell = self.options.of_cell(number)
        seed = self.config.seed if number == 0 else rng.key(self.config.seed, "cell", number)
        config = replace(
            self.config,
            seed=seed,
            loss=cell.loss or self.config.loss,
            g=_player_options(self.config.g, cell.g),
            d=_player_options(self.config.d, cell.d),
            loading=replace(self.config.loading, prefetch=self.config.loading.prefetch or 0),  # none for each cell
        )
        gan = self._game(config, number)
        loss = 0 if cell.loss is None else grid_losses(self.config).index(cell.loss)
        gan.loss = self.losses[loss]
        if classes := self.data_shares.classes(number):
            gan.prior = with_classes(gan.prior, classes)
        if self.options.opponents == "random":
            assert isinstance(gan.g, Player) and isinstance(gan.d, Player)
            gan = replace(gan, g=RandomOpponent(gan.g), d=RandomOpponent(gan.d))
        source = self.data_shares.of(number)
        return Cell(
            number=number,
            gan=gan,
            scheme=build.scheme(config),
            batches=batch_stream(config, source, seed, self.device, flip=self.data.flip),
            losses=self.losses[: len(self.options.losses)] if cell.loss is None else (),
            loss=loss,
        )

    def _game(self, config: RunConfig, number: int) -> GAN:
        try:
            game = build.gan(config, self.data, self.device)
            check_capabilities(GRID, game_needs(game))
            return game
        except ConfigError as error:
            if "grid.cells." in str(error) or not any(number in cell.at for cell in self.options.cells):
                raise
            raise ConfigError(f"grid.cells, cell {number}: {error}") from None

    def population(self, cells: Sequence[Cell], log: Callable[[str], None]) -> Population:
        """Build a population of some cells of the grid."""
        eval_networks = {side: EvalNetwork(self.factories[side](), cells[0].players[side].calling) for side in Side}
        scorer = None
        if self.judge is not None:
            count = self.options.mixture.num_images
            scorer = MixtureScorer(
                network=self.generator, judge=self.judge, prior=self.prior, num_images=count, failures=self.failures
            )
        return Population(
            seed=self.config.seed,
            options=self.options,
            cells=cells,
            topology=topology_of(self.options),
            make_evaluator=partial(self._fitness_evaluator, eval_networks),
            executor=select_executor(self.options, cells, self.config.train.batch, log),
            mixture_scorer=scorer,
            opponent=partial(self._opponent_network, cells[0]),
        )

    def _fitness_evaluator(self, eval_networks: Mapping[Side, EvalNetwork], generation: int) -> FitnessEvaluator:
        """Return the fitness evaluator of a generation: equal latents for all, each cell's real images."""
        count = self.options.fitness.num_images
        rows = Rows(step=generation, first=0, count=count, total=count)
        z, y = self.prior.draw("fitness", rows)

        @cache
        def real_of_share(number: int | None) -> Batch:
            source = self.data.train if number is None else self.data_shares.of(number)
            order = Order(len(source), rng.key(self.prior.seed, "fitness"))
            samples = source.fetch(order.at(np.arange(generation * count, (generation + 1) * count)))
            tensors = {name: tensor.to(self.prior.device) for name, tensor in samples.items()}
            return self.prior.real_batch(Batch(rows, normalise_images(tensors, source)))

        def real_of_cell(number: int) -> Batch:
            has_all_data = self.data_shares.of(number) is self.data.train
            return real_of_share(None if has_all_data else number)  # one batch for all cells that have all data

        loss = build.adversarial(self.options.fitness.loss or choose("losses", "nonsaturating"))
        return FitnessEvaluator(eval_networks=eval_networks, loss=loss, z_BZ=z, y_B=y, reals=real_of_cell)

    def _opponent_network(self, like: Cell, side: Side, genome: Genome) -> CalledNetwork:
        """Return a new network, which calls may change, with the weights of a genome."""
        net = self.factories[side]().requires_grad_(False)
        net.load_state_dict(genome.network_state())
        return CalledNetwork(module=net, calling=like.players[side].calling)

    def mixture(self, members: Sequence[Genome], weights: Sequence[float]) -> Mixture:
        """Combine generators with these mixture weights into one network; uses their EMA, if any."""
        nets = [self.factories[Side.G].construct() for _ in members]
        for net, genome in zip(nets, members, strict=True):
            net.load_state_dict(genome.network_state(average=True))
        return mixture_of(nets, weights).eval().requires_grad_(False)

    def score(self, prior: Prior, net: Mixture) -> Score:
        """Return the score of a mixture; the latents depend only on the seed and the number of images."""
        assert self.judge is not None
        called = CalledNetwork(module=net.to(prior.device))
        return self.judge().score_network(called, replace(prior, latent=net.latent))

    @property
    def are_scored(self) -> bool:
        """Whether mixtures are scored."""
        return self.judge is not None and self.options.mixture.num_images > 0

    @property
    def scored_by(self) -> str | None:
        """Metric by which mixtures are scored, as scores name it; None: they are not."""
        if not self.are_scored:
            return None
        features = evaluation.resolved(self.config, self.data.train).features
        assert features is not None
        return f"{fd.Metric.name}[{extractor_name(features)}]"

    @property
    def loss_names(self) -> list[str]:
        """Names of the losses that cells train with; empty: all with the run's loss."""
        is_drawn = bool(self.options.losses) or len(self.losses) > 1
        return [chosen.name for chosen in grid_losses(self.config)] if is_drawn else []


def grid_losses(config: RunConfig) -> list[Choice]:
    """Return all losses of a grid: those drawn (or the run's), then those of single cells."""
    assert config.grid is not None
    losses = [*(config.grid.losses or (config.loss,))]
    for cell in config.grid.cells:
        if cell.loss is not None and cell.loss not in losses:
            losses.append(cell.loss)
    return losses


def _player_options(options: PlayerOptions, cell: CellPlayerOptions | None) -> PlayerOptions:
    """Return the run's options of a player, with the cell's learning rate."""
    if cell is None or cell.lr is None:
        return options
    return replace(options, optimizer=replace(options.optimizer, lr=cell.lr))
