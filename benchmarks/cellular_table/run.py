"""Measurement of the cellular tables: all methods of training a grid take turns, iteration after iteration.

All methods are set up at the same time and each trains one iteration before any starts the next, so that a machine
that slows down slows all of them. One thread per process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from datetime import date
from pathlib import Path

from benchmarks.cellular_table.methods import Iterate, MethodUnavailableError, set_up
from benchmarks.cellular_table.report import write
from benchmarks.cellular_table.rows import ONE_CORE, UPSTREAM, WORKERS, CellularOptions, GridResult, MethodResult
from benchmarks.progress import ProgressLog
from paragan.core.printable import to_printable

# Approximate seconds per cell of one iteration, for the estimate of the time left.
_COST = {ONE_CORE: 1.0, WORKERS: 1.0, UPSTREAM: 4.5}


def run(options: CellularOptions, out: Path) -> None:
    """Measure all grids and write the files after each. Raises `ConfigError` for what cannot be measured."""
    grids = options.grids()
    today = date.today().isoformat()
    work = sum(_cost(options, grid, name) for grid in grids for name in _COST)
    progress = ProgressLog(work * (1 + options.iterations))
    results: list[GridResult] = []
    for grid in grids:
        measure(options, grid, progress.advance)
        if not results:
            out.mkdir(parents=True, exist_ok=True)
        results.append(grid)
        paths = write(options, results, out, today, complete=len(results) == len(grids))
    print(to_printable(Path(paths[-1]).read_text() + "\n" + "\n".join(map(str, paths))))


def measure(
    options: CellularOptions,
    grid: GridResult,
    advance: Callable[[str, float], None] = lambda label, work: None,
) -> None:
    """Train the grid by all methods.

    The first iteration of ours allocates memory and chooses an executor, so it is not counted. The upstream-style loop
    has no warm-up iteration: its first iteration is the cheapest.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paragan-cellular-")))
        methods: dict[str, Iterate] = {}
        for name in _COST:
            grid.methods[name] = MethodResult()
            try:
                methods[name], close = set_up(options, grid, name, folder)
                stack.callback(close)
            except MethodUnavailableError as error:
                grid.methods[name].reason = str(error)
        work = sum(_cost(options, grid, name) for name in _COST)
        for number in range(1 + options.iterations):
            names = [name for name in methods if number or name != UPSTREAM]
            first = number % len(names)
            for name in (*names[first:], *names[:first]):
                iteration = methods[name]()
                if number:
                    grid.methods[name].iterations.append(iteration)
            label = f"iteration {number} of {options.iterations}" if number else "warm-up"
            advance(f"{grid.shape}, {label}", work)


def _cost(options: CellularOptions, grid: GridResult, name: str) -> float:
    if name == UPSTREAM and not options.upstream:
        return 0.0
    return _COST[name] * (grid.max_cells if name == WORKERS else grid.cells)
