"""The run of a grid: a trainer whose step is a generation, and whose generator is the mixture of its best cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paragan.checkpoint.reader import Checkpoint, read_counts
from paragan.coevolution.cell import Cell, players_of
from paragan.coevolution.cell_state import CellState, finite_number
from paragan.coevolution.executors import auto
from paragan.coevolution.genome import Genome
from paragan.coevolution.population import Population
from paragan.coevolution.profile import Profile
from paragan.coevolution.topology import Topology
from paragan.core.event import Event
from paragan.core.interrupt import StopRequested
from paragan.core.pieces import Pieces
from paragan.core.types import Report, Rows, Side
from paragan.engine.trainer import Trainer
from paragan.evaluation.evaluator import Score
from paragan.evaluation.fixed_samples import samples_event
from paragan.game.mixture import Mixture
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sample import sample

_IMAGES_PER_CELL = 10  # images of each cell in a picture
_MAX_ROWS = 16  # cells in one


@dataclass(frozen=True)
class Ensemble:
    """counts: how often each cell's generator is in it. distance: of what they make, as mixtures are scored."""

    counts: Mapping[int, int]
    distance: float


@dataclass(kw_only=True)
class Evolution(Trainer):
    """gan, scheme and batches are those of the first cell here, whose clock is every cell's.

    mixture: a network of so many generators with these weights. judge: scores it. show: a generator, to sample from.
    losses: that cells train for, by name; none where all have the run's. scored_by: the metric of their mixtures.
    prepare: trains the judge that a generation needs, before the first one.
    """

    population: Population
    mixture: Callable[[Sequence[Mapping[str, Tensor]], Sequence[float]], Mixture]
    show: Callable[[Genome], CalledNetwork]
    judge: Callable[[Prior, Mixture], Score] | None = None
    losses: Sequence[str] = ()
    scored_by: str | None = None
    prepare: Callable[[], object] | None = None
    profile: Profile = field(default_factory=Profile)
    ensemble: Ensemble | None = None  # of the whole grid, once it is trained

    @property
    def cells(self) -> Sequence[Cell]:
        return self.population.cells

    @property
    def players(self) -> dict[str, Player]:
        """The first cell's: all are of a kind."""
        return {side.value: player for side, player in players_of(self.gan).items()}

    @property
    def is_synchronized(self) -> bool:
        return True

    def release_workers(self) -> None:
        self.population.dismiss()

    @property
    def start_values(self) -> dict[str, Any]:
        shape = self.population.options.rows_columns
        grid = {"shape": shape, "losses": list(self.losses), "scored_by": self.scored_by}
        return {"grid": grid | {"neighbours": self._topology().neighbours}}

    @property
    def _auto(self) -> auto.AutoExecutor | None:
        """The executor that chooses, if it is that: rounding follows from its choice, so a run keeps to it."""
        executor = self.population.executor
        return executor if isinstance(executor, auto.AutoExecutor) else None

    def _topology(self, ago: int = 0) -> Topology:
        """In which the newest generation was played, or one so long before it."""
        return self.population.topology(max(0, self.population.generation - 1 - ago))

    @property
    def images_per_report(self) -> float:
        return self.clock.images / max(1, self.population.generation)

    def _begin(self) -> Iterator[Report | Event]:
        """With the judge, so that a stop while it is trained does not come in the middle of a generation."""
        if self.prepare is not None and not self.is_finished:
            with suppress(StopRequested):
                self.prepare()
        yield from super()._begin()

    def run_step(self) -> Generator[Report | Event, None, Report]:
        self.ensemble = None
        self.profile, told = self.population.evolve()
        report = Report(self.clock.step, self.clock.images, _mean_scalars(list(told.values())))
        yield report
        yield self.event("generation", self.record())
        return report

    def end(self) -> Iterator[Report | Event]:
        """A finished grid also tells of the ensemble that is best of all its generators."""
        if self.is_finished and self.ensemble is None and self.population.can_mix:
            with suppress(StopRequested):
                self.ensemble = Ensemble(*self.population.ensemble())
                self.saved_at = -1  # a checkpoint of this moment is to have it
                yield self.event("generation", self.record())
        yield from super().end()

    def record(self) -> dict[str, Any]:
        """How the cells stand, as JSON has it. The neighbourhood is told again where it has become another one."""
        near = self._topology().neighbours
        return {
            "generation": self.population.generation,
            **({} if near == self._topology(1).neighbours else {"neighbours": near}),
            "cells": {str(cell.number): cell.record for cell in self.cells},
            "profile": {"wall_s": self.profile.wall_s, "cpu_s": self.profile.cpu_s},
            **({"workers": workers} if (workers := self.population.workers) else {}),
            **({} if self.ensemble is None else {"ensemble": _ensemble_dict(self.ensemble)}),
        }

    @property
    def best_cell(self) -> Cell:
        """The one whose mixture was nearest when it was scored last; before that, the first."""
        return min(self.cells, key=lambda cell: (float("inf") if cell.score is None else cell.score, cell.number))

    def best_mixture(self) -> Mixture:
        """Of the best cell's neighbourhood as it is, or the ensemble where that is nearer."""
        self.population.collect()
        cell = self.best_cell
        if self.ensemble is not None and self.ensemble.distance < (math.inf if cell.score is None else cell.score):
            counts, centres = self.ensemble.counts, self._centres()
            chosen = [centres[number][Side.G] for number in counts]
            return self._mixed(chosen, [float(count) for count in counts.values()])
        centres = self._centres()
        members = [centres[near][Side.G] for near in self._topology().neighbours[cell.number]]
        weights = cell.weights if len(cell.weights) == len(members) else (1.0,) * len(members)
        return self._mixed(members, weights)

    def _mixed(self, members: Sequence[Genome], weights: Sequence[float]) -> Mixture:
        return self.mixture([genome.network_state(average=True) for genome in members], weights)

    def _centres(self) -> dict[int, Mapping[Side, Genome]]:
        return {cell.number: cell.centre for cell in self.cells}

    @property
    def is_scored(self) -> bool:
        return self.judge is not None

    def compute_score(self, prior: Prior | None = None) -> Score:
        assert self.judge is not None
        return self.judge(prior or self.prior, self.best_mixture())

    def samples(self) -> Event:
        """A row for each cell: its own generator on latents that are always the same."""
        self.population.collect()
        z, y = self.prior.draw("grid", Rows(0, 0, _IMAGES_PER_CELL, _IMAGES_PER_CELL))
        shown = self.cells[:_MAX_ROWS]
        mode, seed = self.fixed_samples.mode, self.prior.seed
        x = torch.cat([sample(self.show(cell.centre[Side.G]), z, y, mode=mode, seed=seed).cpu() for cell in shown])
        rows = tuple(f"cell {cell.number}" for cell in shown)
        return samples_event(self.clock, x, _IMAGES_PER_CELL, rows, mode)

    def state(self) -> tuple[dict[str, Pieces], dict[str, Any]]:
        self.population.collect()
        groups = {f"cell-{c.number}-{s.value}": Pieces(c.centre[s].tensors) for c in self.cells for s in Side}
        mixture = {f"net/{name}": value.contiguous() for name, value in self.best_mixture().state_dict().items()}
        groups["g"] = Pieces(mixture)
        return groups, {
            "generation": self.population.generation,
            "cells": {str(cell.number): cell.state().to_dict() for cell in self.cells},
            "best_cell": self.best_cell.number,
            "executor": self._auto.chosen if self._auto else None,
            "ensemble": None if self.ensemble is None else _ensemble_dict(self.ensemble),
            "players": {},
        }

    def restore(self, checkpoint: Checkpoint) -> None:
        self.population.generation = read_counts(checkpoint.values, "generation")["generation"]
        if self._auto and (chosen := checkpoint.values.get("executor")) in self._auto.others:
            self._auto.chosen = chosen
        if (ensemble := checkpoint.values["ensemble"]) is not None:
            counts = read_counts(ensemble["counts"], *ensemble["counts"])
            self.ensemble = Ensemble({int(cell): n for cell, n in counts.items()}, finite_number(ensemble["distance"]))
        for cell in self.cells:
            tensors = {side: checkpoint.groups[f"cell-{cell.number}-{side.value}"] for side in Side}
            cell.restore(CellState.from_dict(cell.number, checkpoint.values["cells"][str(cell.number)], tensors))


def _ensemble_dict(ensemble: Ensemble) -> dict[str, Any]:
    return {"counts": {str(cell): count for cell, count in ensemble.counts.items()}, "distance": ensemble.distance}


def _mean_scalars(told: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Over the cells that tell it."""
    names = dict.fromkeys(name for of in told for name in of)
    return {name: torch.stack([of[name].float() for of in told if name in of]).mean() for name in names}
