"""Construction of the trainer of a grid from a resolved config."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from paragan.build import evaluation
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import RunConfig
from paragan.core.types import Side
from paragan.evaluation.evaluator import Evaluator
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.evaluation.score import Score
from paragan.extensions.grid.build.factory import GridFactory, grid_losses
from paragan.extensions.grid.cell import Cell
from paragan.extensions.grid.evolution import Evolution, Generations
from paragan.extensions.grid.population import Population
from paragan.game.mixture import Mixture, mixture_of
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior
from paragan.loading.loader import Loader


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
        gan=replace(first.gan, prior=replace(factory.prior, uses_labels=first.gan.prior.uses_labels)),
        scheme=Generations(population),
        batches=first.batches
        if has_all_data
        else Loader(data, config.train.batch, config.seed, factory.device),  # for the record
        checkpoints=CheckpointWriter(folder=folder / "checkpoints", keep=config.every.keep, say=say),
        images=round(config.train.kimg * 1000),
        every=replace(config.every, log_steps=1),
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


def mixture_network(
    make: Callable[[], nn.Module], members: Sequence[Mapping[str, Tensor]], weights: Sequence[float]
) -> Mixture:
    """Combine generators with these mixture weights into one network."""
    nets = [make() for _ in members]
    for net, state in zip(nets, members, strict=True):
        net.load_state_dict(dict(state))
    return mixture_of(nets, weights).eval().requires_grad_(False)


def score_mixture(judge: Callable[[], Evaluator], prior: Prior, net: Mixture) -> Score:
    """Return the score of a mixture; the latents depend only on the seed and the number of images."""
    return judge().score_network(CalledNetwork(module=net.to(prior.device)), replace(prior, latent=net.latent))
