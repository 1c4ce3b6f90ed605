"""Population whose cells are trained by workers; this process has the states collected last."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from paragan.core.types import Clock
from paragan.extensions.grid.cell_state import CellState
from paragan.extensions.grid.population import Population
from paragan.extensions.grid.profile import Profile
from paragan.extensions.grid.workers.coordinator import Coordinator


@dataclass(kw_only=True)
class RemotePopulation(Population):
    """Population on workers; `cells` is empty.

    coordinator: has the states collected last. initial: stands for all cells before the first
    generation. begin: starts the workers then. end: releases them. clock: of the run.
    """

    coordinator: Coordinator
    initial: CellState
    clock: Clock
    begin: Callable[[], None]
    end: Callable[[], None]
    has_begun: bool = False
    _records: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # as sent by the workers last

    def evolve(self) -> tuple[Profile, dict[int, dict[str, Tensor]]]:
        """Run one generation on the workers, which start in the first call."""
        if not self.has_begun:
            self.begin()
            self.has_begun = True
        results = self.coordinator.evolve(self.generation + 1)
        self.generation += 1
        profile = Profile()
        scalars = {}
        for result in results:
            profile.add(result["profile"])
            for number, record, clock, values in result["cells"]:  # as `Worker` sends them
                self._records[number] = record
                scalars[number] = {name: torch.tensor(value) for name, value in values.items()}
                if number == 0:  # the record's steps are those of cell 0
                    self.clock.step, self.clock.images = clock
        return profile, scalars

    @property
    def workers(self) -> list[dict[str, Any]]:
        return self.coordinator.workers

    def states(self) -> list[CellState]:
        states = self.coordinator.collect() if self.has_begun else self.coordinator.states
        return [states.get(number) or replace(self.initial, number=number) for number in range(self.options.num_cells)]

    def records(self) -> dict[int, Mapping[str, Any]]:
        return dict(sorted(self._records.items())) or {state.number: state.record for state in self.states()}

    def restore(self, states: Mapping[int, CellState], generation: int) -> None:
        self.generation = generation
        self.coordinator.resume(states, generation)

    def release_workers(self) -> None:
        self.end()
