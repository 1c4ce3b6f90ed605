"""Forecast of a grid on a cluster: time, bytes, cost, and what the time is lost to.

Losses are differences between simulations with the same random draws, as those of one pair
(`forecast.py`): they add up to the whole generation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paragan.coevolution.options import GridOptions
from paragan.core.errors import ConfigError
from paragan.scaling.cluster import Cluster
from paragan.scaling.forecast import Goal, failure_seconds, lone_worker, loss_shares, loss_stages
from paragan.scaling.grid_profile import GridProfile
from paragan.scaling.grid_routes import Times
from paragan.scaling.simulated_grid import GridCosts, SimulatedGrid

_NUM_GENERATIONS = 200
_WARM_UP = 20
_END = "their work of a generation is done"  # or saved, over MPI
_VERSION = 1


@dataclass(frozen=True)
class GridForecast:
    """A run of a grid on one number of workers.

    shape: of the grid; cells: most of one worker. generation_s: mean seconds of a generation, with
    `low_s` and `high_s`, the 5th and 95th percentile. images_per_s: real images of all cells.
    efficiency: images per second and worker, relative to one worker that has the recipe's grid and
    waits for nothing. exchange_bytes: of one exchange over all links. hours, cost: to the goal.
    losses: shares of the time in per cent, which add up to 100.
    """

    workers: int
    hosts: int
    shape: str
    cells: int
    generation_s: float
    low_s: float
    high_s: float
    images_per_s: float
    efficiency: float
    exchange_bytes: float
    hours: float
    cost: float | None
    losses: Mapping[str, float]


@dataclass(frozen=True)
class GridPlan:
    """Simulated runs of a grid on several numbers of workers. A forecast is no measurement.

    profile: measured on one process. cluster: with one worker. generations: of the run. rows: one
    for each number of workers. notes: what the numbers leave out for this recipe.
    """

    recipe: str
    profile: GridProfile
    cluster: Cluster
    goal: Goal
    generations: int
    rows: tuple[GridForecast, ...]
    notes: tuple[str, ...] = ()
    version: int = _VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain maps, lists and scalars, for JSON."""
        return dataclasses.asdict(self)


def forecast_grid(costs: GridCosts, cluster: Cluster, goal: Goal, seed: int = 0) -> GridForecast:
    """Forecast one number of workers. costs: with the recipe's grid.

    Raises `ConfigError` for a grid that does not fit the workers.
    """
    workers = cluster.workers
    here = replace(costs, options=scaled_grid(costs.options, workers, goal.scaling == "weak"))
    stages = loss_stages(cluster)
    times = {name: _seconds(here, one, seed, name != "imbalance") for name, one in stages.items()}
    single_s = float(_seconds(costs, lone_worker(cluster), seed).mean())
    cells = here.options.num_cells
    compute_s = single_s * cells / (costs.options.num_cells * workers)
    simulated_s = float(times["stragglers"].mean())
    failure_s = failure_seconds(cluster, simulated_s, costs.repeated * simulated_s, _END)
    generation_s = simulated_s + failure_s
    hours = costs.generations * generation_s / 3600
    low_s, high_s = np.percentile(times["stragglers"], [5, 95])
    simulated = SimulatedGrid(here, cluster, seed)
    simulated.run(1)
    return GridForecast(
        workers,
        cluster.hosts,
        here.options.shape,
        max(map(simulated.owners.count, range(workers))),
        generation_s,
        float(low_s),
        float(high_s),
        costs.images * cells / generation_s,
        compute_s / generation_s,
        simulated.num_bytes,
        hours,
        None if goal.cost_per_hour is None else hours * goal.cost_per_hour * workers,
        loss_shares(compute_s, times, failure_s),
    )


def scaled_grid(options: GridOptions, workers: int, is_weak: bool) -> GridOptions:
    """Return the grid of so many workers: the recipe's, or one such grid for each worker (weak).

    The grids of the workers lie next to each other, as square as possible; on a ring in a row.
    """
    if not is_weak:
        if workers > options.num_cells:
            problem = f"{workers:,} workers are too many for a grid of {options.num_cells} cells"
            raise ConfigError(f"{problem}; use at most {options.num_cells}, or --scaling weak")
        return options
    if workers == 1:
        return options
    if options.edges is not None or any(change.edges is not None for change in options.changes):
        problem = "grid.edges names cells, so that the grid cannot grow with the workers"
        raise ConfigError(f"{problem}; use --scaling strong")
    shape = _tiled(options, workers)
    try:
        # what single cells differ in does not change the time of a generation
        return replace(options, shape=shape, cells=(), diet=1.0, overlap=True)
    except ValueError:
        problem = f"{workers:,} workers with {options.num_cells} cells each need a grid of {shape}"
        hint = "use fewer workers, or a smaller grid.shape"
        raise ConfigError(f"{problem}, which is larger than a run may have; {hint}") from None


def _tiled(options: GridOptions, workers: int) -> str:
    rows, columns = options.rows_columns
    if options.topology == "ring":
        return f"1x{rows * columns * workers}"
    divisors = [number for number in range(1, workers + 1) if workers % number == 0]
    down = min(divisors, key=lambda number: abs(rows * number - columns * workers // number))
    return f"{rows * down}x{columns * (workers // down)}"


def _seconds(costs: GridCosts, cluster: Cluster, seed: int, has_coordinator: bool = True) -> Times:
    """Return the seconds of simulated generations, without those of the start."""
    ends = SimulatedGrid(costs, cluster, seed, has_coordinator).run(_NUM_GENERATIONS + _WARM_UP)
    return np.diff(ends)[_WARM_UP - 1 :]
