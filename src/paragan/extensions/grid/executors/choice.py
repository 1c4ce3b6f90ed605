"""Executors of the cells of a process, and their choice: loop, stacked program or recorded steps."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor

from paragan.config.grid_options import GridOptions
from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.phases import work_on
from paragan.core.types import Side
from paragan.core.weight_schedule import WeightSchedule
from paragan.extensions.grid.cell import Cell
from paragan.extensions.grid.executors.stacked import StackedExecutor
from paragan.extensions.grid.executors.stacked_adam import HONOURED, can_stack
from paragan.extensions.grid.population import Executor, LossOf
from paragan.hardware import graphs
from paragan.hardware.executors import time_call

# of the measurement of executors
_WARM_UP_STEPS = 2
_STEPS = 4  # in each round
_ROUNDS = 4
_LIMIT_S = 20.0  # after which no further round begins
_STACKABLE = ("r1", "r2")  # penalties that treat each sample separately and draw nothing


def train_in_loop(cells: Sequence[Cell], num_batches: int, loss_of: LossOf) -> dict[int, dict[str, Tensor]]:
    """Train one cell after another (`population.Executor`); every other executor must equal this one.

    Cells are independent while they train, and the weights of one cell stay in the cache.
    """
    scalars: dict[int, dict[str, Tensor]] = {}
    for cell in cells:
        scalars[cell.number] = {}
        with work_on(f"cell {cell.number}"):
            for batch in range(num_batches):
                scalars[cell.number] |= cell.train_step(loss_of(cell, batch)).scalars
    return scalars


class AutoExecutor:
    """`population.Executor` that chooses among others by measurement.

    Runs a few steps with each before the first generation, in turns, and undoes them; then prints its choice. Rounding
    depends on the choice, so a resumed run repeats it. executors: by name. chosen: name of the choice.
    """

    def __init__(self, executors: Mapping[str, Executor], log: Callable[[str], None]) -> None:
        self.executors = executors
        self.log = log
        self.chosen: str | None = None

    def __call__(self, cells: Sequence[Cell], num_batches: int, loss_of: LossOf) -> dict[int, dict[str, Tensor]]:
        if self.chosen is None:
            seconds = self._measure(cells, loss_of)
            self.chosen = min(seconds, key=lambda name: seconds[name])
            times = ", ".join(f"{name} {1000 * step_s / len(cells):.2f}" for name, step_s in seconds.items())
            self.log(f"executor  {self.chosen} (ms per cell and step: {times})")
        return self.executors[self.chosen](cells, num_batches, loss_of)

    def _measure(self, cells: Sequence[Cell], loss_of: LossOf) -> dict[str, float]:
        """Return seconds per step of all cells, by executor: the minimum over rounds."""
        device = cells[0].players[Side.G].updates.device
        seconds = dict.fromkeys(self.executors, float("inf"))
        before = [(cell, cell.snapshot(0), cell.state(), cell.gan.loss) for cell in cells]
        until = time.perf_counter() + _LIMIT_S
        for round_number in range(_ROUNDS):
            if round_number > 0 and time.perf_counter() >= until:
                break
            for name in list(seconds):
                executor = self.executors[name]
                try:
                    if round_number == 0:
                        executor(cells, _WARM_UP_STEPS, loss_of)
                    step_s = time_call(device, partial(executor, cells, _STEPS, loss_of)) / _STEPS
                    seconds[name] = min(seconds[name], step_s)
                except ConfigError:  # of a network that cannot be stacked
                    if name == "loop":
                        raise
                    del seconds[name]
                for cell, genomes, state, loss in before:  # undo the steps
                    cell.gan.loss = loss
                    for side, genome in genomes.items():
                        genome.load_into(cell.players[side])
                    cell.restore(state)
        return seconds


def select_executor(options: GridOptions, cells: Sequence[Cell], rows: int, log: Callable[[str], None]) -> Executor:
    """Return the executor of `grid.executor` for these cells; `auto` measures the possible ones.

    rows: images per batch. Raises `ConfigError` if the cells cannot be stacked or recorded.
    """
    graph = graphs.graph_factory(cells[0].players[Side.G].updates.device)
    why_not_stacked = unstackable_reason(cells)
    why_not_recorded = why_not_stacked or (
        "this device cannot record its work as graphs" if graph is None else unrecordable_reason(cells)
    )
    reason = {"stacked": why_not_stacked, "recorded": why_not_recorded}.get(options.executor)
    if reason is not None:
        raise ConfigError(f"grid.executor={options.executor} is not possible: {reason}; use loop or auto")
    executors: dict[str, Executor] = {"loop": train_in_loop}
    if why_not_stacked is None:
        stack = StackedExecutor(rows)
        executors["stacked"] = stack
        if why_not_recorded is None and graph is not None:
            executors["recorded"] = partial(stack, graph=graph)
    if options.executor == "auto" and len(cells) > 1 and len(executors) > 1:
        return AutoExecutor(executors, log)
    return executors["loop" if options.executor == "auto" else options.executor]


def unstackable_reason(cells: Sequence[Cell]) -> str | None:
    """Return why these cells cannot be stacked; None if they can."""
    first = cells[0]
    if Capability.STACKED not in first.scheme.capabilities:
        return "the scheme does not train stacked cells"
    for cell in cells:
        for side, player in cell.players.items():
            reference = first.players[side]
            name = side.value.upper()
            if player.strategy.memory.recompute:
                return f"{name} recomputes its activations"
            if len({weight.dtype for weight in player.net.parameters()}) > 1:
                return f"{name} has weights of several dtypes"
            if player.calling.scaled:
                return f"{name} uses a loss scale"
            if player.strategy.training_module(player.net) is not player.net:
                return f"{name} uses a strategy"
            settings = player.policy.non_defaults
            if others := sorted(settings.keys() - HONOURED):
                return f"{name} has {others[0]}={settings[others[0]]!r}, which the stack does not support"
            if player.updates_per_step != reference.updates_per_step or player.version != reference.version:
                return f"{name} has different numbers of updates in the cells"
        if cell.random_opponents:
            return "opponents are drawn for every batch"
        if any(loss.compares for loss in (cell.gan.loss, *cell.losses)):
            return "a loss compares the samples of a batch, and a stacked batch contains those of all cells"
        for penalty in (*cell.gan.g_penalties, *cell.gan.d_penalties):
            if penalty.name not in _STACKABLE:
                return f"the penalty {penalty.name} draws random numbers or reads whole weights"
    return None


def unrecordable_reason(cells: Sequence[Cell]) -> str | None:
    """Return why the turns of these cells cannot be recorded; None if a device can record them."""
    for side in Side:
        players = [cell.players[side] for cell in cells]
        if not can_stack(players):
            return f"{side.value.upper()} does not use the same plain Adam in all cells"
        if players[0].plain_network.draws:
            return f"{side.value.upper()} draws random numbers in its forward pass (dropout)"
    terms = (*cells[0].gan.g_penalties, *cells[0].gan.d_penalties)
    varies = cells[0].gan.adversarial.g_weight_varies
    if varies or any(isinstance(term.weight, WeightSchedule) for term in terms):
        return "the weight of a loss changes from step to step"
    if cells[0].gan.augment is not None:
        return "the augmentation draws random numbers in every step"
    if Capability.RECORDED not in cells[0].scheme.capabilities:
        return "the scheme uses G's images in D's turn before G's turn"
    return None
