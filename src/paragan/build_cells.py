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
from paragan.coevolution import fastest, loop, stacked
from paragan.coevolution import topology as topologies
from paragan.coevolution.cell import Cell
from paragan.coevolution.evolution import Evolution
from paragan.coevolution.fitness import Bout
from paragan.coevolution.genome import Genome
from paragan.coevolution.options import Change, GridOptions
from paragan.coevolution.population import Executor, Population
from paragan.coevolution.rivals import Rivalled
from paragan.coevolution.stage import Stage
from paragan.coevolution.topology import Topology
from paragan.config import RunConfig, choose
from paragan.core import rng, shelf
from paragan.core.dist import ALONE
from paragan.core.errors import ConfigError
from paragan.core.make import Make
from paragan.core.options import Chosen
from paragan.core.seams import Source
from paragan.core.types import Batch, Rows, Side
from paragan.engine import scorer as scorers
from paragan.engine.checkpoint import Checkpoints
from paragan.engine.evaluate import Evaluator, Score
from paragan.engine.pictures import Pictures
from paragan.engine.trainer import Trainer
from paragan.game.gan import Loss
from paragan.game.mixture import Mixture
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sample import Mode, sample
from paragan.hardware import device as devices
from paragan.loading.diet import Diet
from paragan.loading.loader import Loader, normalised
from paragan.loading.order import Order
from paragan.metrics._judged import Judged

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
    ground = Ground.of(config, folder, say, not reading)
    cells = [ground.cell(number) for number in range(ground.options.num_cells)]
    return ground.evolution(cells[0], ground.population(cells, say), folder, say, stop)


@dataclass(frozen=True)
class Ground:
    """What the cells of one process have in common. shown: a generator to look at. judge: who scores; None: nobody."""

    config: RunConfig
    options: GridOptions
    found: build.Data
    device: torch.device
    makers: Mapping[Side, Make]
    shown: Stage
    judge: Callable[[], Evaluator] | None

    @classmethod
    def of(cls, config: RunConfig, folder: Path, say: Callable[[str], None], must_keep: bool = True) -> Ground:
        """`ConfigError` for what cells cannot be trained with."""
        assert config.grid is not None
        _refuse(config, config.grid)
        device, found = devices.pick(config.train.threads), build.data(config)
        if found.has_pairs:
            raise ConfigError("grid: found data of pairs, expected images to be made from latents")
        makers = {side: build.maker(config, side, found, device) for side in Side}
        judge = _evaluator(config, found, folder, say, must_keep)
        return cls(config, config.grid, found, device, makers, Stage(makers[Side.G]()), judge)

    def cell(self, number: int) -> Cell:
        """One of the grid, at its start; the first has the run's own seed, so that a grid of one is the plain run."""
        config, options = self.config, self.options
        seed = config.seed if number == 0 else rng.key(config.seed, "cell", number)
        mine = replace(config, seed=seed)
        gan = build.gan(mine, self.found, self.device)
        if options.opponents == "random":
            assert isinstance(gan.g, Player) and isinstance(gan.d, Player)
            gan = replace(gan, g=Rivalled(gan.g), d=Rivalled(gan.d))
        batches = Loader(self._eaten(number), config.train.batch, seed, self.device)
        return Cell(number, gan, build.scheme(mine), batches, [_loss(chosen) for chosen in options.losses])

    def population(self, cells: Sequence[Cell], say: Callable[[str], None]) -> Population:
        """Some cells of the grid, to be evolved in this process."""
        prior = replace(cells[0].gan.prior, seed=self.config.seed)
        stages = {side: Stage(self.makers[side](), cells[0].players[side].calling) for side in Side}
        judge = self.judge
        return Population(
            self.config.seed,
            self.options,
            cells,
            topology=partial(neighbourhood, self.options),
            bout=partial(self._bout, stages, prior),
            executor=_executor(self.options, cells, self.config.train.batch, say),
            judged=None if judge is None else partial(_judged, self.options, self.shown, judge, prior),
            distance=None if judge is None else lambda judged: judge().distance(judged),
            rival=partial(_rival, self.makers, cells[0]),
        )

    def evolution(
        self, first: Cell, population: Population, folder: Path, say: Callable[[str], None], stop: Callable[[], bool]
    ) -> Evolution:
        """The run of all cells. first: one of them, or like them."""
        config, score = self.config, self.config.score
        return Evolution(
            first.gan,
            first.scheme,
            first.batches,
            round(config.train.kimg * 1000),
            replace(config.every, log_steps=1),
            Checkpoints(folder / "checkpoints", config.every.keep, say),
            stop=stop,
            pictures=Pictures(score.mode),
            population=population,
            mixture=partial(mixture, self.makers[Side.G].construct),
            show=lambda genome: self.shown.show(genome, average=True),
            judge=None if self.judge is None else partial(_scored, self.judge, score.num_images, score.mode),
        )

    def _eaten(self, number: int) -> Source:
        """What of the data a cell sees."""
        diet, apart = self.options.diet, None if self.options.overlap else self.options.num_cells
        return self.found.train if diet == 1 else Diet(self.found.train, diet, self.config.seed, number, apart)

    def _bout(self, stages: Mapping[Side, Stage], prior: Prior, time: int) -> Bout:
        """What everybody is compared on in a generation. Cells on a diet are compared on what they eat."""
        count, seed = self.options.fitness.num_images, self.config.seed
        z, y = prior.draw("fitness", Rows(time, 0, count, count))

        @cache
        def real(number: int) -> Batch:
            source = self._eaten(number)
            order = Order(len(source), rng.key(seed, "fitness"))
            x, labels = source.fetch(order.at(np.arange(time * count, (time + 1) * count)))
            rows = Rows(time, 0, count, count)
            return Batch(rows, normalised(x.to(prior.device)), None if labels is None else labels.to(prior.device))

        shared = self.options.diet == 1
        loss = _loss(self.options.fitness.loss or choose("losses", "nonsaturating"))
        return Bout(stages, loss, z, y, lambda number: real(0 if shared else number))


def neighbourhood(options: GridOptions, generation: int) -> Topology:
    """Whom each cell reads in that generation."""
    started = [change for change in options.changes if change.at <= generation]
    now: GridOptions | Change = max(started, key=lambda change: change.at) if started else options
    if now.edges is not None:
        return topologies.graph(options.num_cells, now.edges)
    if now.topology == "ring":
        return topologies.ring(options.num_cells, now.radius)
    return topologies.torus(*options.rows_columns, now.radius, "transposed" in options.quirks)


def mixture(
    make: Callable[[], nn.Module], members: Sequence[Mapping[str, Tensor]], weights: Sequence[float]
) -> Mixture:
    """Generators with these weights, as one network."""
    nets = [make() for _ in members]
    for net, held in zip(nets, members, strict=True):
        net.load_state_dict(dict(held))
    return Mixture(nets, weights).eval().requires_grad_(False)


def _executor(options: GridOptions, cells: Sequence[Cell], rows: int, say: Callable[[str], None]) -> Executor:
    """How they train. `ConfigError` where they are to be stacked and cannot be."""
    reason = stacked.unfit(cells)
    if options.executor == "stacked":
        if reason is not None:
            raise ConfigError(f"grid.executor: found stacked, but {reason}; use loop, or auto")
        return stacked.Executor(rows)
    if options.executor == "loop" or reason is not None or len(cells) == 1:
        return loop.Executor()
    return fastest.Executor({"loop": loop.Executor(), "stacked": stacked.Executor(rows)}, say)


def _refuse(config: RunConfig, options: GridOptions) -> None:
    """What cells cannot be trained with; a neighbourhood that cannot be is told before any data is read."""
    if config.scheme.name not in _SCHEMES:
        raise ConfigError(f"grid: found scheme {config.scheme.name}, expected one of {', '.join(_SCHEMES)}")
    if options.opponents == "random" and config.scheme.name in ("shared_fakes", "extragradient"):
        expected = "synchronous or skipping: G's own images would be those that D is shown"
        raise ConfigError(f"grid.opponents: found random with scheme {config.scheme.name}, expected {expected}")
    for side, player in (("g", config.g), ("d", config.d)):
        if player.precision == "pure":
            raise ConfigError(f"{side}.precision: found pure on a grid, expected fp32 or bf16")
    for generation in (0, *(change.at for change in options.changes)):
        neighbourhood(options, generation)


def _loss(chosen: Chosen) -> Loss:
    module = shelf.load("losses", chosen.name)
    pair = module.Loss(chosen.options) if hasattr(module, "Loss") else module
    return Loss(pair.d_loss, pair.g_loss, getattr(module, "G_NEEDS_REAL", False))


def _rival(makers: Mapping[Side, Callable[[], nn.Module]], like: Cell, side: Side, genome: Genome) -> CalledNetwork:
    """A network of its own, which training-mode calls may change."""
    net = makers[side]().requires_grad_(False)
    net.load_state_dict(genome.network())
    return CalledNetwork(net, like.players[side].calling)


def _evaluator(
    config: RunConfig, found: build.Data, folder: Path, say: Callable[[str], None], must_keep: bool
) -> Callable[[], Evaluator] | None:
    keeping = scorers.Keeping(folder / "judge", must_keep, say, ALONE)
    path = getattr(config.data.options, "path", None)
    return scorers.evaluator(config.score, found.train, found.held_out, path, keeping)


def _judged(
    options: GridOptions, stage: Stage, judge: Callable[[], Evaluator], prior: Prior, genome: Genome, time: int
) -> Judged:
    """A generator's images of a generation, as the judge sees them: the latents are everybody's."""
    count = options.mixture.num_images
    z, y = prior.draw("mixture", Rows(time, 0, count, count))
    return judge().judge.judge(sample(stage.show(genome, average=True), z, y))


def _scored(judge: Callable[[], Evaluator], num: int, mode: Mode, prior: Prior, net: Mixture) -> Score:
    """The score of a mixture; the latents depend on the seed and `num` alone."""
    z, y = replace(prior, latent=net.latent).draw("score", Rows(0, 0, num, num))
    network = CalledNetwork(net)

    def generate(first: int, count: int) -> tuple[Tensor, Tensor | None]:
        asked = None if y is None else y[first : first + count]
        return sample(network, z[first : first + count], asked, mode=mode, seed=prior.seed, first=first), asked

    return judge().score(generate)
