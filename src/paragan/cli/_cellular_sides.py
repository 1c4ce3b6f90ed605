"""The ways to train a grid that `paragan bench cellular` compares: one iteration at a time, timed by routine."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import paragan
from paragan import build
from paragan.build import evaluation, grid as build_cells, workers
from paragan.cli._cellular_rows import ONE_CORE, UPSTREAM, WORKERS, Asked, Grid, Played
from paragan.coevolution.population import Population
from paragan.coevolution.profile import ROUTINES
from paragan.config import RunConfig, load
from paragan.core.dist import ALONE
from paragan.core.printable import printable
from paragan.evaluation import scorer

_UPSTREAM = "benchmarks.cellular_upstream"
# What the upstream-style loop books, under our names: its `update_genomes` are the steps of training.
_OURS = {
    "gather": "gather",
    "serve": "gather",
    "fitness evaluation": "evaluate",
    "selection, replacement, misc": "update_genomes",
    "mutate": "mutate",
    "update_genomes": "train",
    "data loading": "train",
    "mixture": "score",
}

Play = Callable[[], Played]


class Missing(Exception):
    """One way cannot be measured here; the others can."""


def started(asked: Asked, grid: Grid, name: str, folder: Path) -> tuple[Play, Callable[[], None]]:
    """A call that plays one iteration of the grid, and one that ends it. `Missing` tells why there is none."""
    make = {ONE_CORE: _one_core, WORKERS: _workers, UPSTREAM: _upstream}[name]
    return make(asked, grid, folder)


def _one_core(asked: Asked, grid: Grid, folder: Path) -> tuple[Play, Callable[[], None]]:
    """All cells in this process, one thread."""
    run = build_cells.evolution(_config(asked, grid), folder, _say, lambda: False, reading=True)
    return _timed(run.population, 1), lambda: None


def _workers(asked: Asked, grid: Grid, folder: Path) -> tuple[Play, Callable[[], None]]:
    """Processes of their own, one thread each; this one is their coordinator."""
    if grid.workers < 2:
        raise Missing("there is one core, or one cell")
    run = workers.evolution(_config(asked, grid, f"workers={grid.workers}"), folder, _say, lambda: False)
    return _timed(run.population, grid.workers), run.population.dismiss


def _upstream(asked: Asked, grid: Grid, folder: Path) -> tuple[Play, Callable[[], None]]:
    """Written from a description of the public implementation (benchmarks/), in this process, one thread."""
    if not asked.upstream:
        raise Missing("not asked for")
    root = Path(paragan.__file__).resolve().parents[2]
    if not (root / f"{_UPSTREAM.replace('.', '/')}.py").is_file():
        raise Missing("the upstream-style loop is part of the repository, not of the package; run it from a checkout")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    config, found = _config(asked, grid), importlib.import_module(_UPSTREAM)
    data = build.open_data(config)
    keeping = scorer.ExtractorCache(folder / "judge", True, _say, ALONE)
    judge = scorer.build_evaluator(*evaluation.scoring(config, data, keeping))
    assert judge is not None
    rows, columns = map(int, grid.shape.split("x"))
    images_u8, _ = data.train.fetch(np.arange(len(data.train)))
    loop = found.Upstream(found.Config(rows, columns, asked.batches), images_u8, judge().judge.net)
    torch.set_num_threads(1)

    def play() -> Played:
        began = time.perf_counter()
        spent = _renamed(loop.iterate())
        return Played(time.perf_counter() - began, {}, spent)

    return play, lambda: None


def _config(asked: Asked, grid: Grid, *words: str) -> RunConfig:
    assert asked.mnist is not None
    own = (f"data.path={asked.mnist}", "train.threads=1")
    return load("cellular-mnist", (*own, f"grid.shape={grid.shape}", f"grid.batches={asked.batches}", *words))


def _timed(population: Population, processes: int) -> Play:
    def play() -> Played:
        began = time.perf_counter()
        profile, _ = population.evolve()
        mean = {name: seconds / processes for name, seconds in profile.wall_s.items()}
        return Played(time.perf_counter() - began, mean, dict(profile.cpu_s))

    return play


def _renamed(spent: Mapping[str, float]) -> dict[str, float]:
    found: dict[str, Any] = dict.fromkeys(ROUTINES, 0.0)
    for name, seconds in spent.items():
        found[_OURS[name]] += seconds
    return found


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)
