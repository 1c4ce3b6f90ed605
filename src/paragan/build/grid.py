"""From a resolved config with a grid to the run of its cells. Constructs by `build`'s parts, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from paragan import build
from paragan.build import evaluation
from paragan.build.cell_options import grid_losses, have_same_optimizer, optimizer_kind, player_options
from paragan.build.grid_executor import grid_executor
from paragan.checkpoint.writer import CheckpointWriter
from paragan.coevolution import topology
from paragan.coevolution.cell import Cell
from paragan.coevolution.class_subset_prior import ClassSubsetPrior
from paragan.coevolution.diets import Diets
from paragan.coevolution.eval_network import EvalNetwork
from paragan.coevolution.evolution import Evolution
from paragan.coevolution.fitness import FitnessEvaluator
from paragan.coevolution.genome import Genome
from paragan.coevolution.opponents import RandomOpponent
from paragan.coevolution.options import GridOptions
from paragan.coevolution.population import Population
from paragan.config import RunConfig, choose
from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.metric import SampleFeatures
from paragan.core.network_factory import NetworkFactory
from paragan.core.types import Batch, Rows, Side
from paragan.engine.trainer import Trainer
from paragan.evaluation.evaluator import Evaluator, sample_generator
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.evaluation.score import Score
from paragan.game.gan import GAN, Loss
from paragan.game.mixture import Mixture
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sample import Mode, sample
from paragan.game.state_buffers import refuse_state
from paragan.hardware import device as devices
from paragan.loading.loader import Loader, normalise_images
from paragan.loading.order import Order

_SCHEMES = ("synchronous", "shared_fakes", "skipping", "extragradient")


def trainer(
    config: RunConfig, folder: Path, say: Callable[[str], None], stop: Callable[[], bool], reading: bool = False
) -> Trainer:
    """Trainer of one game, or of the grid if the config has one, in this process."""
    make = build.trainer if config.grid is None else evolution
    return make(config, folder, say, stop, reading)


def evolution(
    config: RunConfig, folder: Path, say: Callable[[str], None], stop: Callable[[], bool], reading: bool = False
) -> Evolution:
    """Trainer of a grid at generation 0; writes nothing. reading: nothing needs to be written later either."""
    factory = GridFactory.of(config, folder, say, not reading, stop=stop)
    cells = [factory.cell(number) for number in range(factory.options.num_cells)]
    return factory.evolution(cells[0], factory.population(cells, say), folder, say, stop)


@dataclass(frozen=True)
class GridFactory:
    """Makes the cells of one process, and holds what they share.

    generator: network for samples and scores. losses: of all cells, those to be drawn first. judge: scores mixtures;
    None: no scores.
    """

    config: RunConfig
    options: GridOptions
    data: build.Data
    device: torch.device
    makers: Mapping[Side, NetworkFactory]
    generator: EvalNetwork
    prior: Prior
    losses: Sequence[Loss]
    diets: Diets
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
    ) -> GridFactory:
        """Open the data and build what cells share. `ConfigError` for settings that a grid does not support.

        device: None: chosen as for any run. stop: as in `ExtractorContext`.
        """
        assert config.grid is not None
        _check_supported(config, config.grid)
        device = device or devices.select_device(config.train.threads)
        data = build.open_data(config, shared=config.workers is not None)
        if data.has_pairs:
            raise ConfigError("grid does not support paired data; use a data set of images or remove grid")
        makers = {side: build.maker(config, side, data, device) for side in Side}
        judge = evaluation.evaluator(
            config,
            evaluation.extractor_context(config, data, folder, say, device, must_save=must_keep, stop=stop),
        )
        generator = EvalNetwork(makers[Side.G]())
        diets = Diets(config.grid, data.train, config.seed)
        prior = build.prior(config, generator.net, data, device)
        losses = [build.adversarial(chosen) for chosen in grid_losses(config)]
        return cls(config, config.grid, data, device, makers, generator, prior, losses, diets, judge)

    def cell(self, number: int) -> Cell:
        """Make a cell. The first has the run's seed, so that a grid of one cell equals a run without a grid."""
        config = self.config
        cell = self.options.of_cell(number)
        seed = config.seed if number == 0 else rng.key(config.seed, "cell", number)
        g = player_options(config.g, cell.g)
        d = player_options(config.d, cell.d)
        cell_config = replace(config, seed=seed, loss=cell.loss or config.loss, g=g, d=d)
        gan = self._build_game(cell_config, number)
        loss = 0 if cell.loss is None else grid_losses(config).index(cell.loss)
        gan.loss = self.losses[loss]
        if classes := self.diets.classes(number):
            gan.prior = ClassSubsetPrior.of(gan.prior, classes)
        if self.options.opponents == "random":
            assert isinstance(gan.g, Player) and isinstance(gan.d, Player)
            gan = replace(gan, g=RandomOpponent(gan.g), d=RandomOpponent(gan.d))
        batches = Loader(self.diets.of(number), config.train.batch, seed, self.device, flip=self.data.flip)
        drawn = self.losses[: len(self.options.losses)] if cell.loss is None else ()
        return Cell(number, gan, build.scheme(cell_config), batches, drawn, loss=loss)

    def _build_game(self, config: RunConfig, number: int) -> GAN:
        try:
            game = build.gan(config, self.data, self.device)
            refuse_state(game, "grid")
            return game
        except ConfigError as error:
            if not any(number in cell.at for cell in self.options.cells):
                raise
            raise ConfigError(f"grid.cells, cell {number}: {error}") from None

    def population(self, cells: Sequence[Cell], say: Callable[[str], None]) -> Population:
        """Make a population of some cells of the grid."""
        eval_networks = {side: EvalNetwork(self.makers[side](), cells[0].players[side].calling) for side in Side}
        judge = self.judge
        return Population(
            self.config.seed,
            self.options,
            cells,
            topology=partial(topology.topology_at, self.options),
            make_evaluator=partial(self._fitness_evaluator, eval_networks),
            executor=grid_executor(self.options, cells, self.config.train.batch, say),
            generator_features=None
            if judge is None
            else partial(_generator_features, self.options, self.generator, judge, self.prior),
            distance=None if judge is None else evaluation.MixtureDistance(judge),
            opponent=partial(_opponent_network, self.makers, cells[0]),
            has_same_optimizer=partial(have_same_optimizer, cache(partial(optimizer_kind, self.config))),
        )

    def evolution(
        self, first: Cell, population: Population, folder: Path, say: Callable[[str], None], stop: Callable[[], bool]
    ) -> Evolution:
        """Make the trainer of a population. first: a cell of it, or an equal one."""
        config = self.config
        score = config.evaluation
        data = self.data.train
        has_all_data = self.diets.of(first.number) is data
        return Evolution(
            replace(first.gan, prior=replace(self.prior, uses_labels=first.gan.prior.uses_labels)),
            first.scheme,
            first.batches
            if has_all_data
            else Loader(data, config.train.batch, config.seed, self.device),  # for the record
            round(config.train.kimg * 1000),
            replace(config.every, log_steps=1),
            CheckpointWriter(folder / "checkpoints", config.every.keep, say),
            stop=stop,
            fixed_samples=FixedSamples(score.mode),
            population=population,
            scored_by=evaluation.distance_name(config, data) if self._are_scored else None,
            losses=[chosen.name for chosen in grid_losses(config)] if self._has_losses else [],
            make_mixture=partial(mixture_network, self.makers[Side.G].construct),
            prepare=self.judge if self._are_scored else None,
            load_generator=lambda genome: self.generator.load(genome, average=True),
            judge=None if self.judge is None else partial(_score_mixture, self.judge, score.num_images, score.mode),
        )

    @property
    def _are_scored(self) -> bool:
        return self.judge is not None and self.options.mixture.num_images > 0

    @property
    def _has_losses(self) -> bool:
        """Whether cells use different losses, or losses that are drawn."""
        return bool(self.options.losses) or len(self.losses) > 1

    def _fitness_evaluator(self, eval_networks: Mapping[Side, EvalNetwork], time: int) -> FitnessEvaluator:
        """Fitness of a generation, on the same latents for all cells and on real images of each cell's data."""
        count = self.options.fitness.num_images
        prior = self.prior
        z, y = prior.draw("fitness", Rows(time, 0, count, count))

        @cache
        def real(number: int | None) -> Batch:
            source = self.data.train if number is None else self.diets.of(number)
            order = Order(len(source), rng.key(prior.seed, "fitness"))
            fetched = source.fetch(order.at(np.arange(time * count, (time + 1) * count)))
            tensors = {name: tensor.to(prior.device) for name, tensor in fetched.items()}
            return prior.real_batch(Batch(Rows(time, 0, count, count), normalise_images(tensors, source)))

        def real_of_cell(number: int) -> Batch:
            return real(None if self.diets.of(number) is self.data.train else number)

        loss = build.adversarial(self.options.fitness.loss or choose("losses", "nonsaturating"))
        return FitnessEvaluator(eval_networks, loss, z, y, real_of_cell)


def mixture_network(
    make: Callable[[], nn.Module], members: Sequence[Mapping[str, Tensor]], weights: Sequence[float]
) -> Mixture:
    """Combine generators with these mixture weights into one network."""
    nets = [make() for _ in members]
    for net, state in zip(nets, members, strict=True):
        net.load_state_dict(dict(state))
    return Mixture(nets, weights).eval().requires_grad_(False)


def _check_supported(config: RunConfig, options: GridOptions) -> None:
    """Check the settings before any data is read; `ConfigError` for what a grid does not support."""
    if config.scheme.name not in _SCHEMES:
        raise ConfigError(f"grid does not support scheme {config.scheme.name}; use one of {', '.join(_SCHEMES)}")
    if options.opponents == "random" and config.scheme.name in ("shared_fakes", "extragradient"):
        raise ConfigError(
            f"grid.opponents: random does not work with scheme {config.scheme.name}, whose G and D turns share images; "
            "use synchronous or skipping"
        )
    for side, player in (("g", config.g), ("d", config.d)):
        if player.precision == "pure":
            raise ConfigError(f"{side}.precision: a grid does not support pure; use fp32 or bf16")
    for generation in (0, *(change.at for change in options.changes)):
        topology.topology_at(options, generation)


def _opponent_network(
    makers: Mapping[Side, Callable[[], nn.Module]], like: Cell, side: Side, genome: Genome
) -> CalledNetwork:
    """A new network with the weights of a genome, which calls in training mode may change."""
    net = makers[side]().requires_grad_(False)
    net.load_state_dict(genome.network_state())
    return CalledNetwork(net, like.players[side].calling)


def _generator_features(
    options: GridOptions, network: EvalNetwork, judge: Callable[[], Evaluator], prior: Prior, genome: Genome, time: int
) -> SampleFeatures:
    """Features of a genome's images in a generation; all genomes use the same latents."""
    count = options.mixture.num_images
    z, y = prior.draw("mixture", Rows(time, 0, count, count))
    return judge().extractor.compute(sample(network.load(genome, average=True), z, y))


def _score_mixture(judge: Callable[[], Evaluator], num: int, mode: Mode, prior: Prior, net: Mixture) -> Score:
    """Score of a mixture; the latents depend on the seed and `num` alone."""
    return judge().score(sample_generator(CalledNetwork(net), replace(prior, latent=net.latent), num, mode))
