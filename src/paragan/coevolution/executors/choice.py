"""Choice of the executor for the cells of a process: loop, stacked program or recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paragan.coevolution.cell import Cell
from paragan.coevolution.executors.auto import AutoExecutor
from paragan.coevolution.executors.loop import LoopExecutor
from paragan.coevolution.executors.stacked import RecordedSteps, StackedExecutor
from paragan.coevolution.executors.stacked_adam import can_stack
from paragan.coevolution.options import GridOptions
from paragan.coevolution.population import Executor
from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.core.weight_schedule import WeightSchedule
from paragan.hardware import graphs

_STACKABLE = ("r1", "r2")  # penalties that treat each sample separately and draw nothing


def select_executor(
    options: GridOptions,
    cells: Sequence[Cell],
    rows: int,
    say: Callable[[str], None],
) -> Executor:
    """Return the executor of `grid.executor` for these cells; `auto` measures the possible ones.

    rows: images per batch. Raises `ConfigError` if the cells cannot be stacked or recorded.
    """
    graph = graphs.graph_factory(cells[0].players[Side.G].updates.device)
    no_stack = unstackable_reason(cells)
    no_graph = no_stack or ("this device cannot record its work" if graph is None else unrecordable_reason(cells))
    reason = {"stacked": no_stack, "recorded": no_graph}.get(options.executor)
    if reason is not None:
        raise ConfigError(f"grid.executor={options.executor} is not possible: {reason}; use loop or auto")
    executors: dict[str, Executor] = {"loop": LoopExecutor()}
    if no_stack is None:
        stack = StackedExecutor(rows)
        executors["stacked"] = stack
        if no_graph is None and graph is not None:
            executors["recorded"] = RecordedSteps(stack, graph)
    if options.executor == "auto" and len(cells) > 1 and len(executors) > 1:
        return AutoExecutor(executors, say)
    return executors["loop" if options.executor == "auto" else options.executor]


def unstackable_reason(cells: Sequence[Cell]) -> str | None:
    """Return why these cells cannot be stacked; None if they can."""
    first = cells[0]
    if Capability.STACKED not in first.scheme.capabilities:
        return "the scheme needs the players themselves"
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
            module = player.strategy.training_module(player.net)
            if player.policy.micro_batches > 1 or module is not player.net:
                return f"{name} uses micro-batches or a strategy"
            if player.updates_per_step != reference.updates_per_step or player.version != reference.version:
                return f"{name} has different numbers of updates in the cells"
        if cell.gan.d.update_probability < 1:
            return "D's updates are drawn for each cell"
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
