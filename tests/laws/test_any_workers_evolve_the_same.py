"""Law: however many workers share a grid, in whatever blocks, its genomes are the same bits."""

import threading

import pytest
import torch

from paragan.config import read_recipe
from paragan.core.types import Side
from paragan.extensions.grid.factory import GridFactory
from paragan.extensions.grid.workers.cell_assignment import assign_cells
from paragan.extensions.grid.workers.genome_exchange import GenomeExchange
from tests.distributed.cases_communicators import linked_threads, together
from tests.genome_digest import digest

WORDS = (
    *("train.threads=1", "train.batch=8", "model={name: mlp, latent: 8, g_widths: [16], d_widths: [16]}"),
    *("scheme={name: skipping}", "penalties=[]", "augment=null", "evaluation.features=null", "grid.batches=3"),
    *("grid.shape=3x3", "grid.fitness.num_images=16", "grid.losses=[minimax, least_squares, nonsaturating]"),
    "grid.executor=loop",
)
GENERATIONS = 3
SLOW = pytest.mark.slow


RING = ("grid.topology=ring",)


@pytest.fixture(scope="module", params=[pytest.param((), id="torus"), pytest.param(RING, id="ring", marks=SLOW)])
def words(request):
    return (*WORDS, *request.param)


@pytest.fixture(scope="module")
def expected(words, tmp_path_factory):
    population = grid(words, range(9), tmp_path_factory.mktemp("alone"))
    for _ in range(GENERATIONS):
        population.evolve()
    return found(population)


def grid(words, numbers, folder):
    factory = GridFactory(read_recipe("digits", words), folder, lambda text: None)
    return factory.population([factory.cell(number) for number in numbers], lambda text: None)


def found(population):
    return {
        cell.number: ([digest(cell.centre[side]) for side in Side], cell.weights, dict(cell.fitness), cell.loss)
        for cell in population.cells
    }


def evolved_by_workers(words, owners, folder, generations):
    """The populations of workers in threads, each with its own cells and no others. owners: a worker of each cell."""
    workers, errors = [], []
    ranks = range(len(set(owners)))
    for communicator in linked_threads([set(ranks) - {rank} for rank in ranks]):
        population = grid(words, [cell for cell, owner in enumerate(owners) if owner == communicator.rank], folder)
        like = population.cells[0].centre
        population.exchange = GenomeExchange(
            communicator=communicator, owners=owners, topology=population.topology, like=like
        )
        workers.append(population)

    def evolve(population):
        torch.set_num_threads(1)
        try:
            for _ in range(generations):
                population.evolve()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=evolve, args=[population], daemon=True) for population in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors and not any(thread.is_alive() for thread in threads)
    together(len(ranks), lambda rank: workers[rank].exchange.communicator.close())
    return workers


@pytest.mark.parametrize(
    "speeds",
    [
        pytest.param([1.0] * 2, id="2"),
        pytest.param([1.0, 3.0, 1.0, 2.0], id="4"),
        *(pytest.param([1.0] * count, id=str(count), marks=SLOW) for count in (3, 9)),
    ],
)
def test_workers_that_exchange_genomes_equal_one_process(words, expected, tmp_path, speeds):
    owners = assign_cells(3, 3, speeds)
    workers = evolved_by_workers(words, owners, tmp_path, GENERATIONS)
    together = {number: told for population in workers for number, told in found(population).items()}
    assert together == expected
    for population in workers:  # what came is what the others were at the last edge
        assert set(population.exchange.copies) >= set(
            population.topology.reach([c.number for c in population.cells])
        ) - {cell.number for cell in population.cells}
