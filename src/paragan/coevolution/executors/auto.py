"""The executor that looks which of the others is faster here, for these networks, and is that one from then on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from paragan.coevolution.cell import Cell
from paragan.coevolution.population import Executor as AnyExecutor
from paragan.core.types import Side

_WARM_UP, _STEPS, _ROUNDS = 2, 4, 4


class AutoExecutor:
    """Fulfils `coevolution.population.Executor`. Before the first generation it plays a few steps with each, in turns,
    and takes them back; the choice is told to `say`, and rounding follows from it. others: by name. chosen: of them; a
    run that goes on keeps to it.
    """

    def __init__(self, others: Mapping[str, AnyExecutor], say: Callable[[str], None]) -> None:
        self.others, self.say = others, say
        self.chosen: str | None = next(iter(others)) if len(others) == 1 else None

    def train(
        self, cells: Sequence[Cell], num_batches: int, loss_of: Callable[[Cell, int], int]
    ) -> dict[int, dict[str, Tensor]]:
        if self.chosen is None:
            seconds = self._measured(cells, loss_of)
            self.chosen = min(seconds, key=lambda name: seconds[name])
            told = ", ".join(f"{name} {1000 * spent / len(cells):.2f}" for name, spent in seconds.items())
            self.say(f"executor  {self.chosen} (ms per cell and step: {told})")
        return self.others[self.chosen].train(cells, num_batches, loss_of)

    def _measured(self, cells: Sequence[Cell], loss_of: Callable[[Cell, int], int]) -> dict[str, float]:
        """Seconds of a step of all cells, by executor: the least of some rounds."""
        seconds = dict.fromkeys(self.others, float("inf"))
        before = [(cell, cell.snapshot(0), cell.state(), cell.gan.loss) for cell in cells]
        for number in range(_ROUNDS):
            for name, executor in self.others.items():
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
    """When all that was asked of the device is done. One thread of a processor is timed by what it works, whatever
    other programs do meanwhile.
    """
    device = cell.players[Side.G].updates.device
    if device.type == "cpu" and torch.get_num_threads() == 1:
        return time.thread_time()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()
