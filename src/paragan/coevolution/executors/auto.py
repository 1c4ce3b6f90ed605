"""Executor that measures the other executors on these networks and uses the fastest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

import torch
from torch import Tensor

from paragan.coevolution.cell import Cell
from paragan.coevolution.population import Executor as AnyExecutor
from paragan.core.types import Side

_WARM_UP = 2
_STEPS = 4
_ROUNDS = 4
_LIMIT_S = 20.0  # after which no further round begins


class AutoExecutor:
    """`coevolution.population.Executor` that chooses among others by measurement.

    Runs a few steps with each before the first generation, in turns, and undoes them; then prints
    its choice with `say`. Rounding depends on the choice, so a resumed run repeats it. executors:
    by name. chosen: name of the choice.
    """

    def __init__(self, executors: Mapping[str, AnyExecutor], say: Callable[[str], None]) -> None:
        self.executors = executors
        self.say = say
        self.chosen: str | None = None

    def train(
        self, cells: Sequence[Cell], num_batches: int, loss_of: Callable[[Cell, int], int]
    ) -> dict[int, dict[str, Tensor]]:
        """Train with the chosen executor; the first call chooses it by measurement."""
        if self.chosen is None:
            seconds = self._measure(cells, loss_of)
            self.chosen = min(seconds, key=lambda name: seconds[name])
            ms = {name: 1000 * spent / len(cells) for name, spent in seconds.items()}
            times = ", ".join(f"{name} {spent:.2f}" for name, spent in ms.items())
            self.say(f"executor  {self.chosen} (ms per cell and step: {times})")
        return self.executors[self.chosen].train(cells, num_batches, loss_of)

    def _measure(
        self,
        cells: Sequence[Cell],
        loss_of: Callable[[Cell, int], int],
    ) -> dict[str, float]:
        """Return seconds per step of all cells, by executor: the minimum over rounds."""
        seconds = dict.fromkeys(self.executors, float("inf"))
        before = [(cell, cell.snapshot(0), cell.state(), cell.gan.loss) for cell in cells]
        until = time.perf_counter() + _LIMIT_S
        for number in takewhile(lambda number: not number or time.perf_counter() < until, range(_ROUNDS)):
            for name, executor in self.executors.items():
                if number == 0:
                    executor.train(cells, _WARM_UP, loss_of)
                began = _device_time_s(cells[0])
                executor.train(cells, _STEPS, loss_of)
                seconds[name] = min(seconds[name], (_device_time_s(cells[0]) - began) / _STEPS)
                for cell, players, state, loss in before:
                    cell.gan.loss = loss
                    for side, genome in players.items():
                        genome.load_into(cell.players[side])
                    cell.restore(state)
        return seconds


def _device_time_s(cell: Cell) -> float:
    """Return the time after all work queued on the device is done.

    CPU time if one CPU thread works, so that other programs do not disturb the measurement;
    otherwise elapsed time.
    """
    device = cell.players[Side.G].updates.device
    if device.type == "cpu" and torch.get_num_threads() == 1:
        return time.thread_time()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()
