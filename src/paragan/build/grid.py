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
from paragan.core.network_factory import NetworkFactory
from paragan.core.types import Batch, Rows, Side
from paragan.engine.trainer import Trainer
from paragan.evaluation.evaluator import Evaluator, Score, sample_generator
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.evaluation.scorer import ExtractorCache, build_evaluator
from paragan.game.gan import GAN, Loss
from paragan.game.mixture import Mixture
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sample import Mode, sample
from paragan.game.state_buffers import refuse_state
from paragan.hardware import device as devices
from paragan.loading.loader import Loader, normalise
from paragan.loading.order import Order
from paragan.metrics._sample_features import SampleFeatures

_SCHEMES = ("synchronous", "shared_fakes", "skipping", "extragradient")


def trainer(
    config: RunConfig, folder: Path, say: Callable[[str], None], stop: Callable[[], bool], reading: bool = False
) -> Trainer:
    """Of one game, or of the grid where the config has one; in one process."""
    make = build.trainer if config.grid is None else evolution
    return make(config, folder, say, stop, reading)


def evolution(
    config: RunConfig, folder: Path, say: Callable[[str], None], stop: Callable[[], bool], reading: bool = False
) -> Evolution:
    """Everything for a grid, at generation 0; writes nothing. reading: nor needs to, later."""
    factory = GridFactory.of(config, folder, say, not reading, stop=stop)
    cells = [factory.cell(number) for number in range(factory.options.num_cells)]
    return factory.evolution(cells[0], factory.population(cells, say), folder, say, stop)


@dataclass(frozen=True)
class GridFactory:
    """What the cells of one process have in common. shown: a generator to look at. losses: that cells train for, those
    to be drawn first. judge: the evaluator; None: no scores.
    """

    config: RunConfig
    options: GridOptions
    found: build.Data
    device: torch.device
    makers: Mapping[Side, NetworkFactory]
    shown: EvalNetwork
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
        """`ConfigError` for what cells cannot be trained with. device: None: as for any run. stop: see `Keeping`."""
        assert config.grid is not None
        _refuse(config, config.grid)
        device = device or devices.select_device(config.train.threads)
        found = build.open_data(config, shared=config.workers is not None)
        if found.has_pairs:
            raise ConfigError("grid: found data of pairs, expected images to be made from latents")
        makers = {side: build.maker(config, side, found, device) for side in Side}
        judge = build_evaluator(
            *evaluation.scoring(config, found, ExtractorCache(folder / "judge", must_keep, say, stop=stop))
        )
        shown, diets = EvalNetwork(makers[Side.G]()), Diets(config.grid, found.train, config.seed)
        prior = build.prior(config, shown.net, found, device)
        losses = [build.adversarial(chosen) for chosen in grid_losses(config)]
        return cls(config, config.grid, found, device, makers, shown, prior, losses, diets, judge)

    def cell(self, number: int) -> Cell:
        """One of the grid, at its start; the first has the run's own seed, so that a grid of one is the plain run."""
        config, own = self.config, self.options.own(number)
        seed = config.seed if number == 0 else rng.key(config.seed, "cell", number)
        g, d = player_options(config.g, own.g), player_options(config.d, own.d)
        mine = replace(config, seed=seed, loss=own.loss or config.loss, g=g, d=d)
        gan, loss = self._game(mine, number), 0 if own.loss is None else grid_losses(config).index(own.loss)
        gan.loss = self.losses[loss]
        if classes := self.diets.classes(number):
            gan.prior = ClassSubsetPrior.of(gan.prior, classes)
        if self.options.opponents == "random":
            assert isinstance(gan.g, Player) and isinstance(gan.d, Player)
            gan = replace(gan, g=RandomOpponent(gan.g), d=RandomOpponent(gan.d))
        batches = Loader(self.diets.of(number), config.train.batch, seed, self.device, flip=self.found.flip)
        drawn = self.losses[: len(self.options.losses)] if own.loss is None else ()
        return Cell(number, gan, build.scheme(mine), batches, drawn, loss=loss)

    def _game(self, mine: RunConfig, number: int) -> GAN:
        try:
            game = build.gan(mine, self.found, self.device)
            refuse_state(game, "grid")
            return game
        except ConfigError as error:
            if not any(number in own.at for own in self.options.cells):
                raise
            raise ConfigError(f"grid.cells, cell {number}: {error}") from None

    def population(self, cells: Sequence[Cell], say: Callable[[str], None]) -> Population:
        """Some cells of the grid, to be evolved in this process."""
        stages = {side: EvalNetwork(self.makers[side](), cells[0].players[side].calling) for side in Side}
        judge = self.judge
        return Population(
            self.config.seed,
            self.options,
            cells,
            topology=partial(topology.topology_at, self.options),
            make_evaluator=partial(self._fitness_evaluator, stages),
            executor=grid_executor(self.options, cells, self.config.train.batch, say),
            generator_features=None
            if judge is None
            else partial(_generator_features, self.options, self.shown, judge, self.prior),
            distance=None if judge is None else lambda judged: judge().distance(judged),
            opponent=partial(_opponent_network, self.makers, cells[0]),
            has_same_optimizer=partial(have_same_optimizer, cache(partial(optimizer_kind, self.config))),
        )

    def evolution(
        self, first: Cell, population: Population, folder: Path, say: Callable[[str], None], stop: Callable[[], bool]
    ) -> Evolution:
        """The run of all cells. first: one of them, or like them."""
        config, score, data = self.config, self.config.score, self.found.train
        whole = self.diets.of(first.number) is data
        return Evolution(
            replace(first.gan, prior=replace(self.prior, uses_labels=first.gan.prior.uses_labels)),
            first.scheme,
            first.batches if whole else Loader(data, config.train.batch, config.seed, self.device),  # for the record
            round(config.train.kimg * 1000),
            replace(config.every, log_steps=1),
            CheckpointWriter(folder / "checkpoints", config.every.keep, say),
            stop=stop,
            fixed_samples=FixedSamples(score.mode),
            population=population,
            scored_by=evaluation.distance_name(config, data) if self._are_scored else None,
            losses=[chosen.name for chosen in grid_losses(config)] if self._has_losses else [],
            mixture=partial(mixture_network, self.makers[Side.G].construct),
            prepare=self.judge if self._are_scored else None,
            show=lambda genome: self.shown.show(genome, average=True),
            judge=None if self.judge is None else partial(_score_mixture, self.judge, score.num_images, score.mode),
        )

    @property
    def _are_scored(self) -> bool:
        return self.judge is not None and self.options.mixture.num_images > 0

    @property
    def _has_losses(self) -> bool:
        """Whether cells train for several, or for one that is drawn."""
        return bool(self.options.losses) or len(self.losses) > 1

    def _fitness_evaluator(self, stages: Mapping[Side, EvalNetwork], time: int) -> FitnessEvaluator:
        """The fitness evaluator of a generation. Cells on a diet are compared on their own share of the data."""
        count, prior = self.options.fitness.num_images, self.prior
        z, y = prior.draw("fitness", Rows(time, 0, count, count))

        @cache
        def real(number: int | None) -> Batch:
            source = self.found.train if number is None else self.diets.of(number)
            order = Order(len(source), rng.key(prior.seed, "fitness"))
            x, labels = source.fetch(order.at(np.arange(time * count, (time + 1) * count)))
            y = None if labels is None else labels.to(prior.device)
            return prior.real_batch(Batch(Rows(time, 0, count, count), normalise(x.to(prior.device)), y))

        def eaten(number: int) -> Batch:
            return real(None if self.diets.of(number) is self.found.train else number)

        loss = build.adversarial(self.options.fitness.loss or choose("losses", "nonsaturating"))
        return FitnessEvaluator(stages, loss, z, y, eaten)


def mixture_network(
    make: Callable[[], nn.Module], members: Sequence[Mapping[str, Tensor]], weights: Sequence[float]
) -> Mixture:
    """Generators with these weights, as one network."""
    nets = [make() for _ in members]
    for net, held in zip(nets, members, strict=True):
        net.load_state_dict(dict(held))
    return Mixture(nets, weights).eval().requires_grad_(False)


def _refuse(config: RunConfig, options: GridOptions) -> None:
    """Refuse settings that cells cannot be trained with, and invalid neighbourhoods, before any data is read."""
    if config.scheme.name not in _SCHEMES:
        raise ConfigError(f"grid: found scheme {config.scheme.name}, expected one of {', '.join(_SCHEMES)}")
    if options.opponents == "random" and config.scheme.name in ("shared_fakes", "extragradient"):
        expected = "synchronous or skipping: G's own images would be those that D is shown"
        raise ConfigError(f"grid.opponents: found random with scheme {config.scheme.name}, expected {expected}")
    for side, player in (("g", config.g), ("d", config.d)):
        if player.precision == "pure":
            raise ConfigError(f"{side}.precision: found pure on a grid, expected fp32 or bf16")
    for generation in (0, *(change.at for change in options.changes)):
        topology.topology_at(options, generation)


def _opponent_network(
    makers: Mapping[Side, Callable[[], nn.Module]], like: Cell, side: Side, genome: Genome
) -> CalledNetwork:
    """A network of its own, which training-mode calls may change."""
    net = makers[side]().requires_grad_(False)
    net.load_state_dict(genome.network_state())
    return CalledNetwork(net, like.players[side].calling)


def _generator_features(
    options: GridOptions, stage: EvalNetwork, judge: Callable[[], Evaluator], prior: Prior, genome: Genome, time: int
) -> SampleFeatures:
    """A generator's images of a generation, as features of the judge; all cells share the latents."""
    count = options.mixture.num_images
    z, y = prior.draw("mixture", Rows(time, 0, count, count))
    return judge().judge.judge(sample(stage.show(genome, average=True), z, y))


def _score_mixture(judge: Callable[[], Evaluator], num: int, mode: Mode, prior: Prior, net: Mixture) -> Score:
    """The score of a mixture; the latents depend on the seed and `num` alone."""
    return judge().score(sample_generator(CalledNetwork(net), replace(prior, latent=net.latent), num, mode))
