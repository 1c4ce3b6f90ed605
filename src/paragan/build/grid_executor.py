"""Choice of the executor for the cells of a process: loop, stacked program or recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paragan.coevolution.cell import Cell
from paragan.coevolution.executors import auto, loop, stacked
from paragan.coevolution.options import GridOptions
from paragan.coevolution.population import Executor
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.hardware import graphs


def grid_executor(options: GridOptions, cells: Sequence[Cell], rows: int, say: Callable[[str], None]) -> Executor:
    """Return the executor of `grid.executor` for these cells; `auto` measures the possible ones.

    rows: images per batch. Raises `ConfigError` if the cells cannot be stacked or recorded.
    """
    graph = graphs.graph_factory(cells[0].players[Side.G].updates.device)
    no_stack = stacked.unstackable_reason(cells)
    no_graph = no_stack or ("this device records nothing" if graph is None else stacked.unrecordable_reason(cells))
    reason = {"stacked": no_stack, "recorded": no_graph}.get(options.executor)
    if reason is not None:
        raise ConfigError(f"grid.executor: {options.executor} is not possible: {reason}; use loop or auto")
    executors: dict[str, Executor] = {"loop": loop.LoopExecutor()}
    if no_stack is None:
        stack = stacked.StackedExecutor(rows)
        executors["stacked"] = stack
        if no_graph is None and graph is not None:
            executors["recorded"] = stacked.RecordedSteps(stack, graph)
    if options.executor == "auto" and len(cells) > 1 and len(executors) > 1:
        return auto.AutoExecutor(executors, say)
    return executors["loop" if options.executor == "auto" else options.executor]
