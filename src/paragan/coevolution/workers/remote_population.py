"""A population whose cells are on workers: the run sees how they stood last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from paragan.coevolution.cell_state import CellState, Centre
from paragan.coevolution.population import Population
from paragan.coevolution.profile import Profile
from paragan.coevolution.workers.coordinator import Coordinator
from paragan.core.clock import Clock


@dataclass
class RemoteCell:
    """A cell that is somewhere else. record: what its worker has told of it last."""

    there: CellState
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return self.there.number

    @property
    def centre(self) -> Centre:
        """As it was collected last."""
        return self.there.centre

    @property
    def weights(self) -> tuple[float, ...]:
        return self.there.weights

    @property
    def score(self) -> float | None:
        return self.record["score"] if self.record else self.there.score

    def state(self) -> CellState:
        return self.there

    def restore(self, there: CellState) -> None:
        self.there, self.record = there, there.record


@dataclass(kw_only=True)
class RemotePopulation(Population):
    """begin: brings the workers, before the first generation; end: sends them home. clock: the run's."""

    coordinator: Coordinator
    clock: Clock
    begin: Callable[[], None]
    end: Callable[[], None]
    begun: bool = False

    def evolve(self) -> tuple[Profile, dict[int, dict[str, Tensor]]]:
        if not self.begun:
            if self.generation:
                self.coordinator.resume({cell.number: cell.state() for cell in self.cells}, self.generation)
            self.begin()
            self.begun = True
        done = self.coordinator.evolve(self.generation + 1)
        self.generation += 1
        for cell in cast(Sequence[RemoteCell], self.cells):
            cell.record = done.cells[cell.number]
        self.clock.step, self.clock.images = done.cells[0]["clock"]
        return done.profile, {0: {name: torch.tensor(value) for name, value in done.numbers.items()}}

    @property
    def workers(self) -> list[dict[str, Any]]:
        return self.coordinator.workers

    def collect(self) -> None:
        if self.begun:
            states = self.coordinator.collect()
            for cell in self.cells:
                cell.restore(states[cell.number])

    def dismiss(self) -> None:
        """Send the workers home."""
        self.end()


def initial_cells(first: CellState, count: int) -> list[RemoteCell]:
    """Cells of which nothing is known yet but that they are like the first."""
    return [RemoteCell(replace(first, number=number)) for number in range(count)]
