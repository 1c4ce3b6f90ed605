"""`paragan bench cellular`: one core, workers, and the upstream-style loop in turn, iteration after iteration.

All ways to train a grid live at the same time and play an iteration each before any plays the next, so that a machine
that slows down slows all of them. One thread per process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from datetime import date
from pathlib import Path

from paragan.cli._cellular_rows import ONE_CORE, UPSTREAM, WORKERS, Asked, Grid, Side
from paragan.cli._cellular_sides import Missing, Play, started
from paragan.cli._cellular_told import write
from paragan.cli._table1 import Pace
from paragan.core.printable import printable

# Of one iteration, in seconds per cell, roughly: what the time to go is told by.
_COST = {ONE_CORE: 1.0, WORKERS: 1.0, UPSTREAM: 4.5}


def run(asked: Asked, out: Path) -> None:
    """Measure all, and write as far as it is after every grid. Raises `ConfigError` for what cannot be measured."""
    grids, today = asked.grids(), date.today().isoformat()
    pace = Pace(sum(_cost(asked, grid, name) for grid in grids for name in _COST) * (1 + asked.iterations))
    found: list[Grid] = []
    for grid in grids:
        measure(asked, grid, pace.tell)
        if not found:
            out.mkdir(parents=True, exist_ok=True)
        found.append(grid)
        paths = write(asked, found, out, today, complete=len(found) == len(grids))
    print(printable(Path(paths[-1]).read_text() + "\n" + "\n".join(map(str, paths))))


def measure(asked: Asked, grid: Grid, tell: Callable[[str, float], None] = lambda what, work: None) -> None:
    """All ways to train this grid. The first iteration of ours, which allocates and chooses an executor, is not
    counted; nor is it played by the upstream-style loop, whose first is the cheapest.
    """
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="paragan-cellular-")))
        plays: dict[str, Play] = {}
        for name in _COST:
            grid.sides[name] = Side()
            try:
                plays[name], end = started(asked, grid, name, folder)
                held.callback(end)
            except Missing as why:
                grid.sides[name].reason = str(why)
        for number in range(1 + asked.iterations):
            names = [name for name in plays if number or name != UPSTREAM]
            first = number % len(names)
            for name in (*names[first:], *names[:first]):
                played = plays[name]()
                if number:
                    grid.sides[name].rounds.append(played)
            work = sum(_cost(asked, grid, name) for name in _COST)
            tell(f"{grid.shape}, {_named(number)} of {asked.iterations}", work)


def _named(number: int) -> str:
    return f"iteration {number}" if number else "to warm up, then iteration 1"


def _cost(asked: Asked, grid: Grid, name: str) -> float:
    if name == UPSTREAM and not asked.upstream:
        return 0.0
    return _COST[name] * (grid.most_cells if name == WORKERS else grid.cells)
