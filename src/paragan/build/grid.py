"""Construction of the trainer of a grid, and of the cells that its processes train, from a resolved config."""

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
from paragan.build.cells import build_cell, grid_losses
from paragan.checkpoint.writer import CheckpointWriter
from paragan.coevolution.cell import Cell
from paragan.coevolution.data_shares import DataShares
from paragan.coevolution.evolution import Evolution, Generations
from paragan.coevolution.executors.choice import select_executor
from paragan.coevolution.fitness import FitnessEvaluator
from paragan.coevolution.genome import EvalNetwork, Genome
from paragan.coevolution.mixture import MixtureScorer
from paragan.coevolution.options import GridOptions
from paragan.coevolution.population import Population
from paragan.coevolution.topology import topology_of
from paragan.config import RunConfig, choose
from paragan.core import rng
from paragan.core.capabilities import GRID, Capability, Need, check_capabilities
from paragan.core.loss import Loss
from paragan.core.network_factory import NetworkFactory
from paragan.core.source import Source
from paragan.core.types import Batch, Rows, Side
from paragan.evaluation.evaluator import Evaluator
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.evaluation.score import Score
from paragan.game.mixture import Mixture
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior
from paragan.hardware import device as devices
from paragan.loading.loader import Loader, normalise_images
from paragan.loading.order import Order


def evolution(
    config: RunConfig, folder: Path, say: Callable[[str], None], stop: Callable[[], bool], reading: bool = False
) -> Evolution:
    """Return the trainer of a grid at generation 0; writes nothing. reading: it never will."""
    factory = GridFactory.of(config, folder, say, not reading, stop=stop)
    cells = [factory.cell(number) for number in range(factory.options.num_cells)]
    return population_trainer(factory, cells[0], factory.population(cells, say), folder, say, stop)


def population_trainer(
    factory: GridFactory,
    first: Cell,
    population: Population,
    folder: Path,
    say: Callable[[str], None],
    stop: Callable[[], bool],
) -> Evolution:
    """Return the trainer of a population. first: a cell of it, or an equal one."""
    config = factory.config
    score = config.evaluation
    data = factory.data.train
    has_different_losses = bool(factory.options.losses) or len(factory.losses) > 1
    has_all_data = factory.data_shares.of(first.number) is data
    return Evolution(
        replace(first.gan, prior=replace(factory.prior, uses_labels=first.gan.prior.uses_labels)),
        Generations(population),
        first.batches
        if has_all_data
        else Loader(data, config.train.batch, config.seed, factory.device),  # for the record
        CheckpointWriter(folder / "checkpoints", config.every.keep, say),
        round(config.train.kimg * 1000),
        replace(config.every, log_steps=1),
        stop=stop,
        fixed_samples=FixedSamples(score.sampling),
        population=population,
        scored_by=evaluation.distance_name(config, data) if factory.are_scored else None,
        losses=[chosen.name for chosen in grid_losses(config)] if has_different_losses else [],
        make_mixture=partial(mixture_network, factory.makers[Side.G].construct),
        prepare=factory.judge if factory.are_scored else None,
        load_generator=lambda genome: factory.generator.load(genome, average=True),
        judge=None if factory.judge is None else partial(score_mixture, factory.judge),
    )


@dataclass(frozen=True)
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
        data = data or build.open_data(config, shared=config.workers is not None)
        check_capabilities(GRID, [Need("data of pairs", Capability.PAIRS, "use other data")] * data.has_pairs)
        makers = {side: build.maker(config, side, data, device) for side in Side}
        judge = evaluation.evaluator(
            config,
            evaluation.extractor_context(config, data, folder, say, device, must_save=must_keep, stop=stop),
        )
        generator = EvalNetwork(makers[Side.G]())
        data_shares = DataShares(config.grid, data.train, config.seed)
        prior = build.prior(config, data, device, {Side.G: generator.net})
        losses = [build.adversarial(chosen) for chosen in grid_losses(config)]
        return cls(config, config.grid, data, device, makers, generator, prior, losses, data_shares, judge)

    def cell(self, number: int) -> Cell:
        """Build cell `number`."""
        return build_cell(self.config, number, self.data, self.device, self.data_shares, self.losses)

    def population(self, cells: Sequence[Cell], say: Callable[[str], None]) -> Population:
        """Build a population of some cells of the grid."""
        eval_networks = {side: EvalNetwork(self.makers[side](), cells[0].players[side].calling) for side in Side}
        judge = self.judge
        return Population(
            self.config.seed,
            self.options,
            cells,
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


def fitness_evaluator(
    options: GridOptions,
    train: Source,
    data_shares: DataShares,
    prior: Prior,
    eval_networks: Mapping[Side, EvalNetwork],
    time: int,
) -> FitnessEvaluator:
    """Return the fitness evaluator of a generation: equal latents, each cell's real images."""
    count = options.fitness.num_images
    z, y = prior.draw("fitness", Rows(time, 0, count, count))

    @cache
    def real(number: int | None) -> Batch:
        source = train if number is None else data_shares.of(number)
        order = Order(len(source), rng.key(prior.seed, "fitness"))
        fetched = source.fetch(order.at(np.arange(time * count, (time + 1) * count)))
        tensors = {name: tensor.to(prior.device) for name, tensor in fetched.items()}
        images = normalise_images(tensors, source)
        return prior.real_batch(Batch(Rows(time, 0, count, count), images))

    def real_of_cell(number: int) -> Batch:
        return real(None if data_shares.of(number) is train else number)

    loss = build.adversarial(options.fitness.loss or choose("losses", "nonsaturating"))
    return FitnessEvaluator(eval_networks, loss, z, y, real_of_cell)


def mixture_network(
    make: Callable[[], nn.Module], members: Sequence[Mapping[str, Tensor]], weights: Sequence[float]
) -> Mixture:
    """Combine generators with these mixture weights into one network."""
    nets = [make() for _ in members]
    for net, state in zip(nets, members, strict=True):
        net.load_state_dict(dict(state))
    return Mixture(nets, weights).eval().requires_grad_(False)


def opponent_network(
    makers: Mapping[Side, Callable[[], nn.Module]], like: Cell, side: Side, genome: Genome
) -> CalledNetwork:
    """Return a new network, which calls may change, with the weights of a genome."""
    net = makers[side]().requires_grad_(False)
    net.load_state_dict(genome.network_state())
    return CalledNetwork(net, like.players[side].calling)


def score_mixture(judge: Callable[[], Evaluator], prior: Prior, net: Mixture) -> Score:
    """Return the score of a mixture; the latents depend only on the seed and the number of images."""
    return judge().score_network(CalledNetwork(net.to(prior.device)), replace(prior, latent=net.latent))
