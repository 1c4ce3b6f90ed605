"""Methods of training a grid that `paragan bench cellular` compares: one iteration at a time, timed by routine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from benchmarks import cellular_upstream
from benchmarks.cellular_table.rows import ONE_CORE, UPSTREAM, WORKERS, CellularOptions, GridResult, Iteration
from paragan import build
from paragan.build import evaluation
from paragan.config import RunConfig, read_recipe
from paragan.core.printable import to_printable
from paragan.extensions.grid.build import coordinator as workers, trainer as build_grid
from paragan.extensions.grid.population import Population
from paragan.extensions.grid.profile import ROUTINES

# Routine names of the upstream-style loop -> ours. Its `update_genomes` are the training steps.
_ROUTINE_OF_UPSTREAM = {
    "gather": "gather",
    "serve": "gather",
    "fitness evaluation": "evaluate",
    "selection, replacement, misc": "update_genomes",
    "mutate": "mutate",
    "update_genomes": "train",
    "data loading": "train",
    "mixture": "score",
}

Iterate = Callable[[], Iteration]


class MethodUnavailableError(Exception):
    """A method cannot be measured here; the others can."""


def set_up(options: CellularOptions, grid: GridResult, name: str, folder: Path) -> tuple[Iterate, Callable[[], None]]:
    """A function that trains one iteration of the grid, and one that closes the method.

    Raises `MethodUnavailableError` with the reason where the method cannot be measured.
    """
    methods = {ONE_CORE: _one_core, WORKERS: _workers, UPSTREAM: _upstream}
    return methods[name](options, grid, folder)


def _one_core(options: CellularOptions, grid: GridResult, folder: Path) -> tuple[Iterate, Callable[[], None]]:
    """All cells in this process, one thread."""
    run = build_grid.evolution(_config(options, grid), folder, _print_line, lambda: False, reading=True)
    return _timed(run.population, 1), lambda: None


def _workers(options: CellularOptions, grid: GridResult, folder: Path) -> tuple[Iterate, Callable[[], None]]:
    """Cells on worker processes with one thread each; this process is the coordinator."""
    if grid.workers < 2:
        raise MethodUnavailableError("there is only one core, or one cell")
    config = _config(options, grid, f"workers={grid.workers}")
    run = workers.evolution_on_workers(config, folder, _print_line, lambda: False)
    return _timed(run.population, grid.workers), run.population.release_workers


def _upstream(options: CellularOptions, grid: GridResult, folder: Path) -> tuple[Iterate, Callable[[], None]]:
    """A loop written from a description of the public implementation, in this process, one thread."""
    if not options.upstream:
        raise MethodUnavailableError("disabled by --no-upstream")
    config = _config(options, grid)
    data = build.open_data(config)
    context = evaluation.extractor_context(data, folder, _print_line, torch.device("cpu"))
    judge = evaluation.evaluator(config, context)
    assert judge is not None
    rows, columns = map(int, grid.shape.split("x"))
    images_u8 = data.train.fetch(np.arange(len(data.train)))["image"]
    settings = cellular_upstream.Config(rows, columns, options.batches)
    loop = cellular_upstream.Upstream(settings, images_u8, judge().extractor.network)
    torch.set_num_threads(1)

    def iterate() -> Iteration:
        start = time.perf_counter()
        seconds = _renamed(loop.iterate())
        return Iteration(time.perf_counter() - start, {}, seconds)

    return iterate, lambda: None


def _config(options: CellularOptions, grid: GridResult, *overrides: str) -> RunConfig:
    assert options.mnist is not None
    fixed = (f"data.path={options.mnist}", "train.threads=1")
    size = (f"grid.shape={grid.shape}", f"grid.batches={options.batches}")
    return read_recipe("cellular-mnist", (*fixed, *size, *overrides))


def _timed(population: Population, processes: int) -> Iterate:
    def iterate() -> Iteration:
        start = time.perf_counter()
        profile, _ = population.evolve()
        mean = {name: seconds / processes for name, seconds in profile.wall_s.items()}
        return Iteration(time.perf_counter() - start, mean, dict(profile.cpu_s))

    return iterate


def _renamed(seconds: Mapping[str, float]) -> dict[str, float]:
    totals = dict.fromkeys(ROUTINES, 0.0)
    for name, value in seconds.items():
        totals[_ROUTINE_OF_UPSTREAM[name]] += value
    return totals


def _print_line(line: str) -> None:
    print(to_printable(line), file=sys.stderr, flush=True)
