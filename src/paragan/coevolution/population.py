"""The cells of this process, and what one generation does to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from paragan.coevolution.cell import Cell
from paragan.coevolution.cell_state import Centre
from paragan.coevolution.fitness import FitnessEvaluator
from paragan.coevolution.genome import Genome
from paragan.coevolution.mixture import Distance, SampleFeatures, evolve_weights, greedy_ensemble
from paragan.coevolution.options import GridOptions
from paragan.coevolution.profile import Profile
from paragan.coevolution.topology import Topology
from paragan.coevolution.variation import draw_loss, mutate_lr, tournament
from paragan.core.types import Side
from paragan.game.network import CalledNetwork


class Executor(Protocol):
    """How the cells of one process train."""

    def train(
        self, cells: Sequence[Cell], num_batches: int, loss_of: Callable[[Cell, int], int]
    ) -> dict[int, dict[str, Tensor]]: ...


class Exchange(Protocol):
    """Where genomes of cells come from."""

    def gather(self, mine: Mapping[int, Centre], reach: Sequence[int], generation: int) -> dict[int, Centre]:
        """Those in reach, by cell, from mine and from other processes."""


class LocalExchange:
    """All cells are in this process."""

    def gather(self, mine: Mapping[int, Centre], reach: Sequence[int], generation: int) -> dict[int, Centre]:
        return {cell: mine[cell] for cell in reach}


@dataclass
class Population:
    """topology: of a generation. make_evaluator: for it. judged: the images of a generator, as the mixtures are scored;
    None: weights stay as they are. rival: a network of this genome, to play against. alike: whether two cells have
    the same optimiser on this side, so that its memory and its rate mean something in the other one.
    """

    seed: int
    options: GridOptions
    cells: Sequence[Cell]
    topology: Callable[[int], Topology]
    make_evaluator: Callable[[int], FitnessEvaluator]
    executor: Executor
    generator_features: Callable[[Genome, int], SampleFeatures] | None = None
    distance: Distance | None = None
    opponent: Callable[[Side, Genome], CalledNetwork] | None = None
    has_same_optimizer: Callable[[Side, int, int], bool] = lambda side, a, b: True
    exchange: Exchange = field(default_factory=LocalExchange)
    generation: int = 0  # finished ones
    stop: Callable[[], None] = lambda: None  # called before every step; raises to give up the generation

    def evolve(self) -> tuple[Profile, dict[int, dict[str, Tensor]]]:
        """One generation of the cells here; what it took, and the last numbers of each cell's training."""
        time, profile = self.generation, Profile()
        topology, evaluator = self.topology(time), self.make_evaluator(time)
        with profile.measure("gather"):
            near = self._gather(topology, time)
        with profile.measure("evaluate"):
            evaluator.precompute_logits((g[Side.G], d[Side.D]) for group in near.values() for g in group for d in group)
            before = {cell.number: self._fitness(evaluator, near[cell.number], cell.number) for cell in self.cells}
        with profile.measure("update_genomes"):
            chosen = {cell.number: self._select(before[cell.number], cell.number) for cell in self.cells}
            parents = {n: self._parents(n, near[n], chosen[n], topology.neighbours[n]) for n in near}
        with profile.measure("mutate"):
            rates = {cell.number: self._rates(parents[cell.number], cell) for cell in self.cells}
        with profile.measure("update_genomes"):
            for cell in self.cells:
                self._clone(cell, near[cell.number], parents[cell.number], rates[cell.number])
        with profile.measure("train"):
            told = self.executor.train(self.cells, self.options.batches, self._loss_of)
        with profile.measure("update_genomes"):
            trained = {cell.number: cell.snapshot(time + 1) for cell in self.cells}
        with profile.measure("evaluate"):
            after = {n: self._after(evaluator, near[n], trained[n], n) for n in trained}
        with profile.measure("update_genomes"):
            for cell in self.cells:
                self._replace(cell, before[cell.number], trained[cell.number], after[cell.number])
        with profile.measure("score"):
            pools: dict[Genome, SampleFeatures] = {}
            former = self.topology(max(0, time - 1)).neighbours
            for cell in self.cells:
                if former[cell.number] != topology.neighbours[cell.number]:
                    cell.weights = ()  # they were of others
                self._mix(cell, [centre[Side.G] for centre in near[cell.number]], time, pools)
        self.generation += 1
        return profile, told

    def _gather(self, topology: Topology, time: int) -> dict[int, list[Centre]]:
        """By cell, the centres of its neighbourhood, its own first."""
        mine = {cell.number: cell.centre for cell in self.cells}
        theirs = self.exchange.gather(mine, topology.reach(mine), time)
        if not self.options.inherit_optimizer_state:
            theirs = {
                cell: {s: genome.without_optimizer_state() for s, genome in centre.items()}
                for cell, centre in theirs.items()
            }
        return {cell: [mine[cell], *(theirs[n] for n in topology.neighbours[cell][1:])] for cell in mine}

    def _fitness(self, evaluator: FitnessEvaluator, group: Sequence[Centre], cell: int) -> dict[Side, list[float]]:
        """Of everybody in a neighbourhood, in its order."""
        candidates = {side: [centre[_OPPONENT[side]] for centre in group] for side in Side}
        by = self.options.fitness.of
        return {side: [evaluator.fitness(side, c[side], candidates[side], cell, by) for c in group] for side in Side}

    def _select(self, fitness: Mapping[Side, Sequence[float]], cell: int) -> dict[Side, int]:
        """Whom of its neighbourhood a cell trains."""
        size = self.options.tournament
        if not size:
            return dict.fromkeys(Side, 0)
        return {s: tournament(fitness[s], size, self.seed, cell, self.generation, s) for s in Side}

    def _parents(
        self, cell: int, group: Sequence[Centre], chosen: Mapping[Side, int], numbers: Sequence[int]
    ) -> dict[Side, Genome]:
        """Whom a cell clones: from one with another optimiser weights alone, at the rate of its own last individual."""
        found = {}
        for side, place in chosen.items():
            found[side] = group[place][side]
            if not self.has_same_optimizer(side, cell, numbers[place]):
                found[side] = found[side].without_optimizer_state(group[0][side].traits.lr)
        return found

    def _rates(self, parents: Mapping[Side, Genome], cell: Cell) -> dict[Side, float]:
        place = self.seed, cell.number, self.generation
        rates = self.options.rates
        return {side: mutate_lr(genome.traits.lr, rates, *place, side) for side, genome in parents.items()}

    def _clone(
        self, cell: Cell, group: Sequence[Centre], parents: Mapping[Side, Genome], rates: Mapping[Side, float]
    ) -> None:
        for side in Side:
            cell.clone(side, parents[side], rates[side])
        for side, seat in cell.seats.items():
            assert self.opponent is not None
            candidates = [self.opponent(side, centre[side]) for centre in group]
            seat.draw(candidates, self.options.batches, self.seed, cell.number, self.generation)

    def _loss_of(self, cell: Cell, batch: int) -> int:
        self.stop()
        every = batch if self.options.drawn == "batch" else 0
        return draw_loss(len(cell.losses), self.seed, cell.number, self.generation, every) if cell.losses else 0

    def _after(
        self, evaluator: FitnessEvaluator, group: Sequence[Centre], trained: Centre, cell: int
    ) -> dict[Side, float]:
        """Fitness of the trained against those that the old centre was measured with."""
        by = self.options.fitness.of
        return {s: evaluator.fitness(s, trained[s], [c[_OPPONENT[s]] for c in group], cell, by) for s in Side}

    def _replace(
        self, cell: Cell, before: Mapping[Side, Sequence[float]], trained: Centre, after: Mapping[Side, float]
    ) -> None:
        always, centre = self.options.replacement == "always", dict(cell.centre)
        for side in Side:
            cell.fitness[side] = before[side][0]
            if always or after[side] < before[side][0] or before[side][0] != before[side][0]:
                centre[side], cell.fitness[side] = trained[side], after[side]
        cell.centre = centre

    @property
    def workers(self) -> list[dict[str, Any]]:
        """For the record; none where the cells are here."""
        return []

    def collect(self) -> None:
        """Nothing: the cells are here."""

    def dismiss(self) -> None:
        """Nobody."""

    @property
    def can_mix(self) -> bool:
        """Whether mixtures are scored, and an ensemble is wanted."""
        mixture = self.options.mixture
        return self.generator_features is not None and mixture.num_images > 0 and mixture.ensemble > 0

    def ensemble(self) -> tuple[dict[int, int], float]:
        """The best of all generators here together: how often which cell's, and the distance of what they make."""
        assert self.generator_features is not None and self.distance is not None
        self.collect()
        pools = [self.generator_features(cell.centre[Side.G], self.generation) for cell in self.cells]
        counts, distance = greedy_ensemble(pools, self.distance, self.options.mixture.ensemble)
        return {self.cells[place].number: count for place, count in counts.items()}, distance

    def _mix(self, cell: Cell, group: Sequence[Genome], time: int, pools: dict[Genome, SampleFeatures]) -> None:
        """The cell's own new generator, and its neighbours' as they were gathered. pools: images judged already."""
        members = [cell.centre[Side.G], *group[1:]]
        if len(cell.weights) != len(members):  # the first generation, or another neighbourhood
            cell.weights = (1 / len(members),) * len(members)
        if self.generator_features is None or self.distance is None or not self.options.mixture.num_images:
            return
        for genome in members:
            if genome not in pools:
                pools[genome] = self.generator_features(genome, time)
        theirs, sigma = [pools[genome] for genome in members], self.options.mixture.sigma
        cell.weights, cell.score = evolve_weights(
            theirs, cell.weights, sigma, self.distance, self.seed, cell.number, time
        )


_OPPONENT = {Side.G: Side.D, Side.D: Side.G}
