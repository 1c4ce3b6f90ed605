"""Training loop of a grid: a step is one generation, the generator is the best cell's mixture."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from paragan.checkpoint.reader import Checkpoint, read_counts
from paragan.core.event import Event
from paragan.core.interrupt import StopRequested
from paragan.core.layout import Pieces
from paragan.core.phases import Phase, phase, work_on
from paragan.core.types import Batch, Report, Rows, Side
from paragan.engine.training_loop import TrainingLoop
from paragan.evaluation.fixed_samples import SampleSheet, samples_event
from paragan.extensions.grid.cell import Cell, players_of
from paragan.extensions.grid.cell_state import CellState, finite_number
from paragan.extensions.grid.executors.choice import AutoExecutor
from paragan.extensions.grid.factory import GridFactory
from paragan.extensions.grid.mixture import Ensemble
from paragan.extensions.grid.population import Population
from paragan.extensions.grid.profile import Profile
from paragan.game.gan import GAN
from paragan.game.mixture import Mixture
from paragan.game.player import Player
from paragan.game.sampling import generate_images
from paragan.game.scheme import Scheme

_IMAGES_PER_CELL = 10  # in the image grid
_MAX_ROWS = 16  # cells in the image grid


class Generations(Scheme):
    """Scheme whose step is one generation of a population."""

    def __init__(self, population: Population) -> None:
        self.population = population
        self.profile = Profile()  # times of the newest generation

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        with work_on(f"generation {self.population.generation + 1}"):
            self.profile, scalars = self.population.evolve()
        in_order = [scalars[number] for number in sorted(scalars)]  # workers report in any order
        return Report(gan.clock.step, gan.clock.images, _mean_scalars(in_order))


@dataclass(kw_only=True)
class Evolution(TrainingLoop):
    """Training loop of a population.

    gan, batches: of the first cell in this process; all cells share its clock. scheme: `Generations` of the population.
    factory: makes and scores mixtures. ensemble: of the whole grid, once it is trained.
    """

    population: Population
    factory: GridFactory
    ensemble: Ensemble | None = None

    def __post_init__(self) -> None:
        # scores are those of a mixture, not of one cell's player; `score` is a field of `TrainingLoop`
        if self.factory.judge is not None:
            self.score = lambda player, prior: self.factory.score(prior, self.best_mixture())

    @property
    def cells(self) -> Sequence[Cell]:
        return self.population.cells

    @property
    def players(self) -> dict[str, Player]:
        """Players of the first cell; all cells have the same networks."""
        return {side.value: player for side, player in players_of(self.gan).items()}

    @property
    def _auto(self) -> AutoExecutor | None:
        """Automatic executor, if used; a resumed run repeats its choice for equal rounding."""
        executor = self.population.executor
        return executor if isinstance(executor, AutoExecutor) else None

    def _begin(self) -> Iterator[Event]:
        """Train the judge before the first generation: a stop of that training must not interrupt a generation."""
        yield from super()._begin()
        if self.factory.are_scored and self.factory.judge is not None and not self.is_finished:
            try:
                with suppress(StopRequested), phase(Phase.EVALUATION):
                    self.factory.judge()
            except Exception as error:  # of an extractor that is a user's: no score ends a run
                self.factory.failures.add("the judge", error)

    def describe(self) -> dict[str, Any]:
        grid = {
            "shape": self.population.options.rows_columns,
            "losses": self.factory.loss_names,
            "scored_by": self.factory.scored_by,
            "neighbours": self.population.topology.neighbours,
        }
        return {**super().describe(), "grid": grid}

    def _log_step(self, report: Report) -> Iterator[Event]:
        self.ensemble = None  # one that a finished run was resumed with is of former generators
        yield from super()._log_step(report)
        yield self.event("generation", self.record())

    def end(self) -> Iterator[Event]:
        """Build and report the ensemble of a finished grid, if generators have a distance."""
        if self.is_finished and self.ensemble is None and self.population.can_mix:
            with suppress(StopRequested), phase(Phase.EVALUATION):
                self.ensemble = self.population.build_ensemble()
            if self.ensemble is not None:
                self.saved_at = -1  # the next checkpoint must contain it
                yield self.event("generation", self.record())
        yield from super().end()

    def release(self) -> None:
        super().release()
        self.population.release_workers()

    def record(self) -> dict[str, Any]:
        """Return the values of a generation for JSON."""
        assert isinstance(self.scheme, Generations)
        record = {
            "generation": self.population.generation,
            "cells": {str(number): values for number, values in self.population.records().items()},
            "profile": asdict(self.scheme.profile),
        }
        if workers := self.population.workers:
            record["workers"] = workers
        if self.ensemble is not None:
            record["ensemble"] = self.ensemble._asdict()
        return record

    @property
    def best_cell(self) -> CellState:
        """Cell with the lowest mixture distance at its last score; before any, the first cell."""
        return min(self.population.states(), key=lambda cell: (_distance(cell), cell.number))

    def best_mixture(self) -> Mixture:
        """Build the mixture of the best cell, or the ensemble if its distance is lower."""
        cell = self.best_cell
        if self.ensemble is not None and self.ensemble.distance < _distance(cell):
            members = list(self.ensemble.counts)
            weights = [float(count) for count in self.ensemble.counts.values()]
        else:
            members = list(self.population.topology.neighbours[cell.number])
            is_evolved = len(cell.weights) == len(members)
            weights = list(cell.weights) if is_evolved else [1.0] * len(members)
        generators = {state.number: state.centre[Side.G] for state in self.population.states()}
        return self.factory.mixture([generators[number] for number in members], weights)

    @phase(Phase.EVALUATION)
    def samples(self) -> Event:
        """Sample each cell's generator from fixed latents, one row of images per cell."""
        z, y = self.prior.draw("grid", Rows(step=0, first=0, count=_IMAGES_PER_CELL, total=_IMAGES_PER_CELL))
        cells = self.population.states()[:_MAX_ROWS]
        assert self.fixed_samples is not None
        mode = self.fixed_samples.mode
        rows = []
        for cell in cells:
            generator = self.factory.generator.load(cell.centre[Side.G], average=True)
            rows.append(generate_images(generator, z, y, mode=mode, seed=self.prior.seed).cpu())
        names = tuple(f"cell {cell.number}" for cell in cells)
        return samples_event(self.clock, SampleSheet(torch.cat(rows), _IMAGES_PER_CELL, names), mode)

    def state(self) -> tuple[dict[str, Pieces], dict[str, Any]]:
        """Return tensors by group (each cell's genomes, the best mixture), and values for JSON."""
        states = self.population.states()
        groups = {}
        for cell in states:
            for side, genome in cell.centre.items():
                groups[f"cell-{cell.number}-{side.value}"] = Pieces(genome.tensors)
        mixture = self.best_mixture().state_dict()
        groups["g"] = Pieces({f"net/{name}": value.contiguous() for name, value in mixture.items()})
        return groups, {
            "generation": self.population.generation,
            "cells": {str(cell.number): cell.to_dict() for cell in states},
            "best_cell": self.best_cell.number,
            "executor": None if self._auto is None else self._auto.chosen,
            "ensemble": None if self.ensemble is None else self.ensemble._asdict(),
            "players": {},  # which readers of any checkpoint expect; here they are the cells'
        }

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the cells, the generation, the executor's choice and the ensemble."""
        chosen = checkpoint.values.get("executor")
        if self._auto is not None and chosen in self._auto.executors:
            self._auto.chosen = chosen
        ensemble = checkpoint.values["ensemble"]
        if ensemble is not None:
            counts = read_counts(ensemble["counts"], *ensemble["counts"].keys())
            counts_by_cell = {int(cell): count for cell, count in counts.items()}
            self.ensemble = Ensemble(counts_by_cell, finite_number(ensemble["distance"]))
        states = {}
        for number in range(self.population.options.num_cells):
            tensors = {side: checkpoint.groups[f"cell-{number}-{side.value}"] for side in Side}
            states[number] = CellState.from_dict(number, checkpoint.values["cells"][str(number)], tensors)
        self.population.restore(states, read_counts(checkpoint.values, "generation")["generation"])


def _distance(cell: CellState) -> float:
    """Return the distance of a cell's mixture from the real images, infinite without one."""
    return math.inf if cell.score is None else cell.score


def _mean_scalars(scalars_of_cells: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Average each scalar over the cells that report it."""
    values_by_name: dict[str, list[Tensor]] = {}
    for scalars in scalars_of_cells:
        for name, value in scalars.items():
            values_by_name.setdefault(name, []).append(value.float())
    return {name: torch.stack(values).mean() for name, values in values_by_name.items()}
