"""Population: the cells of this process, and their evolution over one generation.

Draws are keyed by their purpose and place, never by process.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import torch
from torch import Tensor

from paragan.config.grid_options import GridOptions, RateOptions
from paragan.core import rng
from paragan.core.metric import SampleFeatures
from paragan.core.phases import work_on
from paragan.core.types import Side
from paragan.extensions.grid.cell import Cell
from paragan.extensions.grid.cell_state import CellState, Centre
from paragan.extensions.grid.fitness import FitnessEvaluator
from paragan.extensions.grid.genome import Genome
from paragan.extensions.grid.mixture import Ensemble, MixtureScorer, evolve_weights, greedy_ensemble
from paragan.extensions.grid.profile import Profile
from paragan.extensions.grid.topology import Topology
from paragan.game.network import CalledNetwork

LossOf = Callable[[Cell, int], int]  # number of the loss of a cell at a step
# trains each cell of a process for a number of steps; returns the last scalars by cell
Executor = Callable[[Sequence[Cell], int, LossOf], dict[int, dict[str, Tensor]]]
# (cells of this process, numbers) -> centres of at least the cells with these numbers, also of other processes
Exchange = Callable[[Sequence[Cell], Sequence[int]], Mapping[int, Centre]]


def local_exchange(cells: Sequence[Cell], reach: Sequence[int]) -> dict[int, Centre]:
    """Exchange where all cells are in this process."""
    return {cell.number: cell.centre for cell in cells}


@dataclass(kw_only=True)
class Population:
    """Cells of one process.

    make_evaluator: fitness of a generation. mixture_scorer: None: mixture weights stay unchanged.
    opponent: loads a genome as a network to play against.
    """

    seed: int
    options: GridOptions
    cells: Sequence[Cell]
    topology: Topology
    make_evaluator: Callable[[int], FitnessEvaluator]
    executor: Executor
    mixture_scorer: MixtureScorer | None = None
    opponent: Callable[[Side, Genome], CalledNetwork] | None = None
    exchange: Exchange = local_exchange
    generation: int = 0  # number of finished generations
    check_stop: Callable[[], None] = lambda: None  # called before every step; raises to abort

    def evolve(self) -> tuple[Profile, dict[int, dict[str, Tensor]]]:
        """Run one generation; returns its times, and the last training scalars of each cell."""
        profile = Profile()
        evaluator = self.make_evaluator(self.generation)
        # all by the number of the cell
        with profile.measure("gather"):
            groups = self._gather()
        with profile.measure("evaluate"):
            pairs = chain.from_iterable(product(group, group) for group in groups.values())
            evaluator.precompute_logits((g[Side.G], d[Side.D]) for g, d in pairs)
            before = {n: self._fitness(evaluator, group, group, n) for n, group in groups.items()}
        with profile.measure("update_genomes"):
            parents = {n: self._select(before[n], groups[n], n) for n in groups}
        with profile.measure("mutate"):
            rates = {n: self._mutate_rates(parents[n], n) for n in groups}
        with profile.measure("update_genomes"):
            for cell in self.cells:
                self._clone(cell, groups[cell.number], parents[cell.number], rates[cell.number])
        with profile.measure("train"):
            scalars = self.executor(self.cells, self.options.batches, self._loss_of)
        with profile.measure("update_genomes"):
            trained = {cell.number: cell.snapshot(self.generation + 1) for cell in self.cells}
        # against the opponents and samples of `before`: else a luckier draw would replace a fitter genome
        with profile.measure("evaluate"):
            after = {n: self._fitness(evaluator, [trained[n]], groups[n], n) for n in groups}
        with profile.measure("update_genomes"):
            for cell in self.cells:
                self._replace(cell, before[cell.number], trained[cell.number], after[cell.number])
        with profile.measure("score"):
            pools: dict[Genome, SampleFeatures | None] = {}
            for cell in self.cells:
                with work_on(f"cell {cell.number}"):
                    self._mix(cell, [centre[Side.G] for centre in groups[cell.number]], pools)
        self.generation += 1
        return profile, scalars

    def _gather(self) -> dict[int, list[Centre]]:
        """Return the centres of each cell's neighbourhood, beginning with the cell."""
        numbers = [cell.number for cell in self.cells]
        centres = self.exchange(self.cells, self.topology.reach(numbers))
        return {number: [centres[n] for n in self.topology.neighbours[number]] for number in numbers}

    def _fitness(
        self, evaluator: FitnessEvaluator, centres: Sequence[Centre], group: Sequence[Centre], cell: int
    ) -> dict[Side, list[float]]:
        """Return the fitness of the genomes of some centres against a cell's neighbourhood."""
        aggregate = self.options.fitness.aggregate
        fitness = {}
        for side in Side:
            opponents = [centre[_OPPONENT[side]] for centre in group]
            genomes = [centre[side] for centre in centres]
            fitness[side] = [evaluator.fitness(side, genome, opponents, cell, aggregate) for genome in genomes]
        return fitness

    def _select(
        self, fitness: Mapping[Side, Sequence[float]], group: Sequence[Centre], cell: int
    ) -> dict[Side, Genome]:
        """Return the genomes that a cell clones, with optimiser state and learning rate."""
        size = self.options.tournament
        parents = {}
        for side in Side:
            winner = tournament(fitness[side], size, self.seed, cell, self.generation, side) if size else 0
            parents[side] = group[winner][side]
        return parents

    def _mutate_rates(self, parents: Mapping[Side, Genome], cell: int) -> dict[Side, float]:
        """Return the learning rates of the clones of these genomes."""
        options = self.options.rates
        return {
            side: mutate_lr(parent.traits.lr, options, self.seed, cell, self.generation, side)
            for side, parent in parents.items()
        }

    def _clone(
        self, cell: Cell, group: Sequence[Centre], parents: Mapping[Side, Genome], rates: Mapping[Side, float]
    ) -> None:
        """Clone the parents as players of a cell, and draw the candidates that they play against."""
        for side in Side:
            cell.clone(side, parents[side], rates[side])
        for side, slot in cell.random_opponents.items():
            assert self.opponent is not None
            candidates = [self.opponent(side, centre[side]) for centre in group]
            slot.draw(candidates, self.options.batches, self.seed, cell.number, self.generation)

    def _loss_of(self, cell: Cell, batch: int) -> int:
        """Return the loss of a cell, which is that of the generation in every batch."""
        self.check_stop()
        count = len(cell.losses)
        return draw_loss(count, self.seed, cell.number, self.generation) if count else 0

    def _replace(
        self,
        cell: Cell,
        before: Mapping[Side, Sequence[float]],
        trained: Centre,
        after: Mapping[Side, Sequence[float]],
    ) -> None:
        """Replace the genomes of a cell by the trained ones, if these are fitter."""
        is_always = self.options.replacement == "always"
        centre = dict(cell.centre)
        for side in Side:
            current = before[side][0]
            new = after[side][0]
            is_replaced = is_always or new < current or math.isnan(current)
            cell.fitness[side] = new if is_replaced else current
            if is_replaced:
                centre[side] = trained[side]
        cell.centre = centre

    @property
    def workers(self) -> list[dict[str, Any]]:
        """Workers, for the run record; empty if all cells are in this process."""
        return []

    def states(self) -> list[CellState]:
        """Return the states of all cells, in order; collects them from workers, if there are any."""
        return [cell.state() for cell in self.cells]

    def records(self) -> dict[int, Mapping[str, Any]]:
        """Return the values of each cell for the run record, as of the newest generation."""
        return {cell.number: cell.state().record for cell in self.cells}

    def restore(self, states: Mapping[int, CellState], generation: int) -> None:
        """Restore all cells at a generation boundary. states: by number."""
        self.generation = generation
        for cell in self.cells:
            cell.restore(states[cell.number])

    def release_workers(self) -> None:
        """Release the workers; without workers, the threads of the cells."""
        for cell in self.cells:
            cell.batches.close()

    @property
    def can_mix(self) -> bool:
        """Whether mixtures are scored and an ensemble is enabled."""
        mixture = self.options.mixture
        return self.mixture_scorer is not None and min(mixture.num_images, mixture.ensemble) > 0

    def build_ensemble(self) -> Ensemble | None:
        """Build the greedy ensemble of all generators, by the numbers of their cells; None if none has a distance."""
        scorer = self.mixture_scorer
        assert scorer is not None
        states = self.states()
        pools = [scorer.features(state.centre[Side.G], self.generation) for state in states]
        features = [pool for pool in pools if pool is not None]
        if len(features) < len(pools):  # the extractor has failed: no generator is known to be better
            return None
        counts, distance = greedy_ensemble(features, scorer.distance, self.options.mixture.ensemble)
        if not counts:
            return None
        return Ensemble({states[index].number: count for index, count in counts.items()}, distance)

    def _mix(self, cell: Cell, group: Sequence[Genome], pools: dict[Genome, SampleFeatures | None]) -> None:
        """Evolve a cell's mixture of its new generator and the gathered ones of its neighbours.

        pools: cache of features by genome.
        """
        members = [cell.centre[Side.G], *group[1:]]
        if len(cell.weights) != len(members):  # the first generation, or another radius after a resume
            cell.weights = (1 / len(members),) * len(members)
        scorer = self.mixture_scorer
        if scorer is None or not self.options.mixture.num_images:
            return
        for genome in members:
            if genome not in pools:
                pools[genome] = scorer.features(genome, self.generation)
        features = [pool for genome in members if (pool := pools[genome]) is not None]
        if len(features) < len(members):  # the extractor has failed: the mixture stays, without a score
            cell.score = None
            return
        sigma = self.options.mixture.sigma
        cell.weights, score = evolve_weights(
            features, cell.weights, sigma, scorer.distance, self.seed, cell.number, self.generation
        )
        cell.score = score if math.isfinite(score) else None


_OPPONENT = {Side.G: Side.D, Side.D: Side.G}


def tournament(fitness: Sequence[float], size: int, seed: int, cell: int, generation: int, side: Side) -> int:
    """Return the index of the fittest of `size` drawn without replacement; ties: first drawn."""
    generator = rng.generator(seed, "tournament", cell, generation, side.value)
    contenders = torch.randperm(len(fitness), generator=generator)[:size].tolist()
    return int(min(contenders, key=lambda index: fitness[index] if math.isfinite(fitness[index]) else math.inf))


def mutate_lr(lr: float, options: RateOptions, seed: int, cell: int, generation: int, side: Side) -> float:
    """Return the learning rate after a possible mutation."""
    generator = rng.generator(seed, "rate", cell, generation, side.value)
    drawn = float(torch.rand((), generator=generator, dtype=torch.float64))
    step = options.rate * float(torch.randn((), generator=generator, dtype=torch.float64))
    if drawn >= options.probability:
        return lr
    return lr * math.exp(step) if options.form == "lognormal" else max(0.0, lr + step)


def draw_loss(count: int, seed: int, cell: int, generation: int) -> int:
    """Draw the number of a loss uniformly from `count` (Mustangs)."""
    generator = rng.generator(seed, "loss", cell, generation, 0)
    return int(torch.randint(count, (), generator=generator))
