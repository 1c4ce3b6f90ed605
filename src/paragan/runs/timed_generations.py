"""Times of generations of some cells in one process, as a worker of a grid trains them.

Generations are those of the trainer's `Population`. The cells of other workers are copies that need
no exchange.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from paragan.build.grid_factory import GridFactory
from paragan.coevolution.cell import Cell
from paragan.coevolution.cell_state import Centre
from paragan.coevolution.genome import Genome
from paragan.coevolution.options import GridOptions
from paragan.coevolution.population import Population
from paragan.coevolution.topology import Topology, topology_at
from paragan.hardware import heap
from paragan.hardware.executors import synchronized_time
from paragan.scaling.grid_profile import GenerationWork

_MOST_BATCHES = 32  # lazy penalties repeat within them; more take as long each
_FEWEST = 2  # generations
_MOST = 4
_BUDGET_S = 10.0  # after which no more generations are measured
Say = Callable[[str], None]


@dataclass(frozen=True)
class WorkerPlace:
    """Neighbourhoods of the cells of one worker, numbered from 0; then come those that it reads."""

    topology: Topology
    work: GenerationWork

    @classmethod
    def of(cls, options: GridOptions, owners: Sequence[int]) -> WorkerPlace:
        """Return the place of worker 0. owners: worker of each cell."""
        topology = topology_at(options, 0)
        mine = [cell for cell, owner in enumerate(owners) if owner == 0]
        others = [cell for cell in topology.reach(mine) if cell not in mine]
        numbers = {cell: number for number, cell in enumerate([*mine, *others])}
        near = [[numbers[cell] for cell in topology.neighbours[one]] for one in mine]
        local = Topology(tuple(map(tuple, near)))
        return cls(local, GenerationWork.of(range(len(mine)), local))


@dataclass(frozen=True)
class GenerationCost:
    """Seconds of a generation: of training with all that is not named here, comparison, scores.

    cpu_share: in which a processor core computed.
    """

    work: GenerationWork
    train_s: float
    evaluate_s: float
    score_s: float
    cpu_share: float

    @property
    def generation_s(self) -> float:
        """Seconds of the whole generation."""
        return self.train_s + self.evaluate_s + self.score_s


@dataclass(frozen=True)
class TimedGenerations:
    """Cells of one process whose generations are timed. cells: at least as many as a worker has."""

    factory: GridFactory
    cells: Sequence[Cell]
    say: Say

    def measure(self, place: WorkerPlace) -> GenerationCost:
        """Time some generations at a place; the first is not counted.

        Times are those of the faster half: other processes only make generations slower. Of many
        batches only some are trained.
        """
        count = place.work.cells
        self.say(f"measuring generations of {count} {'cell' if count == 1 else 'cells'}")
        population = self._population(place)
        self._generation(population)
        began = time.perf_counter()
        times: list[_Seconds] = []
        while len(times) < _FEWEST or time.perf_counter() - began < _BUDGET_S:
            times.append(self._generation(population))
            if len(times) == _MOST:
                break
        return GenerationCost(
            place.work,
            train_s=_faster_half([one.train + one.other for one in times]),
            evaluate_s=_faster_half([one.evaluate for one in times]),
            score_s=_faster_half([one.score for one in times]),
            cpu_share=min(1.0, sum(one.cpu for one in times) / sum(one.whole for one in times)),
        )

    def _population(self, place: WorkerPlace) -> Population:
        mine = self.cells[: place.work.cells]
        population = self.factory.population(mine, self.say)
        population.topology = lambda generation: place.topology
        population.exchange = _Copies(self.cells[0].centre)
        batches = min(_MOST_BATCHES, self.factory.options.batches)
        population.options = replace(self.factory.options, batches=batches)
        return population

    def _generation(self, population: Population) -> _Seconds:
        """Run one generation; return its seconds, with all batches of the recipe.

        On a CPU with one thread these are CPU seconds, which other programs do not disturb.
        """
        device = self.factory.device
        is_cpu_time = device.type == "cpu" and torch.get_num_threads() == 1
        began_s = time.process_time() if is_cpu_time else synchronized_time(device)
        profile, _ = population.evolve()
        ended_s = time.process_time() if is_cpu_time else synchronized_time(device)
        heap.release_freed_memory()  # as a worker does
        by_part = profile.cpu_s if is_cpu_time else profile.wall_s
        named_s = by_part["train"] + by_part["evaluate"] + by_part["score"]
        other_s = ended_s - began_s - by_part["gather"] - named_s
        times = self.factory.options.batches / population.options.batches
        parts = (times * by_part["train"], other_s, by_part["evaluate"], by_part["score"])
        cpu_s = sum(profile.cpu_s.values()) + (times - 1) * profile.cpu_s["train"]
        return _Seconds(*parts, sum(parts) if is_cpu_time else cpu_s)


@dataclass(frozen=True)
class _Seconds:
    """Seconds of one generation by part; cpu: of all parts, in which a core computed."""

    train: float
    other: float
    evaluate: float
    score: float
    cpu: float

    @property
    def whole(self) -> float:
        return self.train + self.other + self.evaluate + self.score


class _Copies:
    """`coevolution.population.Exchange` whose other cells have copies of one cell's genomes."""

    def __init__(self, centre: Centre) -> None:
        self._centre = centre
        self._made: dict[int, Centre] = {}

    def gather(
        self,
        cells: Sequence[Cell],
        reach: Sequence[int],
        generation: int,
    ) -> dict[int, Centre]:
        mine = {cell.number: cell.centre for cell in cells}
        for number in reach:
            if number not in mine and number not in self._made:
                self._made[number] = {
                    side: Genome(genome.tensors, genome.traits) for side, genome in self._centre.items()
                }
        return self._made | mine


def _faster_half(values: Sequence[float]) -> float:
    return statistics.mean(sorted(values)[: len(values) // 2 + 1])
