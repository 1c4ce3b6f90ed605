"""Construction of the trainer of a grid from a resolved config."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import RunConfig
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.extensions.grid.cell import Cell
from paragan.extensions.grid.evolution import Evolution, Generations
from paragan.extensions.grid.factory import GridFactory
from paragan.extensions.grid.population import Population
from paragan.loading.loader import Loader


def evolution(
    config: RunConfig, folder: Path, log: Callable[[str], None], stop: Callable[[], bool], reading: bool = False
) -> Evolution:
    """Return the trainer of a grid at generation 0; writes nothing. reading: it never will."""
    factory = GridFactory(config, folder, log, not reading, stop=stop)
    cells = [factory.cell(number) for number in range(factory.options.num_cells)]
    return population_trainer(factory, cells[0], factory.population(cells, log), folder, log, stop)


def population_trainer(
    factory: GridFactory,
    first: Cell,
    population: Population,
    folder: Path,
    log: Callable[[str], None],
    stop: Callable[[], bool],
) -> Evolution:
    """Return the trainer of a population. first: a cell of it, or an equal one."""
    config = factory.config
    data = factory.data.train
    batches = first.batches
    if factory.data_shares.of(first.number) is not data:  # the record describes the data of the whole grid
        batches = Loader(data, config.train.batch, config.seed, factory.device)
    # the first cell may have some of the classes, the grid has all; whether G reads labels was found in a built game
    prior = replace(factory.prior, uses_labels=first.gan.prior.uses_labels)
    return Evolution(
        gan=replace(first.gan, prior=prior),
        scheme=Generations(population),
        batches=batches,
        checkpoints=CheckpointWriter(folder=folder / "checkpoints", keep=config.every.keep, log=log),
        images=round(config.train.kimg * 1000),
        every=replace(config.every, log_steps=1),  # a step is a generation, and each is recorded
        stop=stop,
        fixed_samples=FixedSamples(config.evaluation.sampling),
        population=population,
        factory=factory,
    )
