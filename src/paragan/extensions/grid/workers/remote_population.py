"""Population whose cells are trained by workers; this process has the states collected last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from paragan.core.types import Clock
from paragan.extensions.grid.cell_state import CellState, Centre
from paragan.extensions.grid.population import Population
from paragan.extensions.grid.profile import Profile
from paragan.extensions.grid.workers.coordinator import Coordinator


@dataclass
class RemoteCell:
    """Cell on a worker. last_state: as collected last. record: values that its worker sent last."""

    last_state: CellState
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return self.last_state.number

    @property
    def centre(self) -> Centre:
        """Genomes as collected last."""
        return self.last_state.centre

    @property
    def weights(self) -> tuple[float, ...]:
        return self.last_state.weights

    @property
    def score(self) -> float | None:
        return self.record["score"] if self.record else self.last_state.score

    def state(self) -> CellState:
        return self.last_state

    def restore(self, state: CellState) -> None:
        self.last_state = state
        self.record = state.record


@dataclass(kw_only=True)
class RemotePopulation(Population):
    """Population on workers.

    begin: starts the workers, before the first generation. end: releases them. clock: of the run.
    """

    coordinator: Coordinator
    clock: Clock
    begin: Callable[[], None]
    end: Callable[[], None]
    has_begun: bool = False

    def evolve(self) -> tuple[Profile, dict[int, dict[str, Tensor]]]:
        """Run one generation on the workers, which start in the first call."""
        if not self.has_begun:
            if self.generation:
                states = {cell.number: cell.state() for cell in self.cells}
                self.coordinator.resume(states, self.generation)
            self.begin()
            self.has_begun = True
        results = self.coordinator.evolve(self.generation + 1)
        self.generation += 1
        profile = Profile()
        scalars = {}
        for result in results:
            profile.add(result["profile"])
            for number, record, clock, values in result["cells"]:
                cast(RemoteCell, self.cells[number]).record = record
                scalars[number] = {name: torch.tensor(value) for name, value in values.items()}
                if number == 0:
                    self.clock.step, self.clock.images = clock
        return profile, scalars

    @property
    def workers(self) -> list[dict[str, Any]]:
        return self.coordinator.workers

    def collect(self) -> None:
        if self.has_begun:
            states = self.coordinator.collect()
            for cell in self.cells:
                cell.restore(states[cell.number])

    def release_workers(self) -> None:
        """Release the workers."""
        self.end()
