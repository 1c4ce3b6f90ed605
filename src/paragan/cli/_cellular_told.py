"""The slides' two tables, measured here, as JSON and as Markdown."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from paragan.cli._cellular_rows import (
    ONE_CORE,
    SLIDES_MINUTES,
    SLIDES_ROUTINES,
    UPSTREAM,
    WORKERS,
    Asked,
    Grid,
    Played,
    routines,
    slides_weak,
)
from paragan.cli._table1_told import machine
from paragan.core.files import write_text
from paragan.distributed.launch.rank_env import num_cores

Cell = float | int | str | None
_NAMES = (ONE_CORE, WORKERS, UPSTREAM)
_GRIDS = (
    *("grid", "one core, s", "workers", "distributed, s", "speed-up", "weak scaling"),
    *("CPU s a cell: one core", "distributed", "kept", UPSTREAM, "upstream / one core"),
    *("slides: speed-up", "slides: weak scaling"),
)


def write(asked: Asked, found: Sequence[Grid], out: Path, today: str, complete: bool) -> list[Path]:
    """Both files in `out`, as far as it is. today: the day it began."""
    record: dict[str, Any] = {
        "date": today,
        "machine": machine(),
        "cores": num_cores(),
        "torch": importlib.metadata.version("torch"),
        "threads": 1,
        "complete": complete,
        "note": note(asked),
        "asked": {key: value for key, value in asdict(asked).items() if key != "mnist"},
        "grids": [told(grid, _base(found)) for grid in found],
        "slides": {"minutes": SLIDES_MINUTES, "routines": SLIDES_ROUTINES},
    }
    paths = [out / f"{today}-cellular.{ending}" for ending in ("json", "md")]
    for path, text in zip(paths, (json.dumps(record, indent=1) + "\n", page(record, found)), strict=True):
        write_text(path, text)
    return paths


def told(grid: Grid, base: Grid) -> dict[str, Any]:
    """A grid for JSON. base: what its weak scaling is compared with."""
    sides = {
        name: {"not_run": side.reason} if not side.rounds else {"iterations": [asdict(one) for one in side.rounds]}
        for name, side in grid.sides.items()
    }
    return {
        "shape": grid.shape,
        "cells": grid.cells,
        "workers": grid.workers,
        "speed_up": grid.speed_up,
        "weak_scaling": grid.weak_scaling(base),
        "cpu_kept": grid.core_efficiency,
        "upstream_over_one_core": grid.upstream_ratio,
        "sides": sides,
    }


def note(asked: Asked) -> str:
    """What has to be known to read the numbers."""
    return (
        f"an iteration of {asked.batches} batches of 100 (the slides: 600) on MNIST, medians of {asked.iterations}; "
        "one thread per process; wall: seconds by the clock, of a routine the mean over the workers; CPU: seconds of "
        "all processes together. Weak scaling: seconds per cell of the fullest worker on the first grid over those "
        "here. Kept: CPU seconds on one core over those of all workers. Upstream-style: a loop of our own, written "
        "from a description of the public implementation, at the same settings on one core; its first iteration, the "
        "cheapest, counts. The slides do not tell of which grid their routines are, in which unit, nor what exactly "
        "belongs to which; ours are: gather: the neighbours' genomes; evaluate: fitness; update_genomes: cloning and "
        "replacement; mutate: learning rates and losses; train: steps of the game; score: mixtures"
    )


def page(record: dict[str, Any], found: Sequence[Grid]) -> str:
    """In Markdown."""
    about = f"{record['date']}, {record['machine']}, {record['cores']} cores, torch {record['torch']}"
    parts = [f"# Cellular training: one core and distributed\n\n{about}: {record['note']}.", grids(found)]
    parts += [f"## {grid.shape}\n\n{by_routine(grid)}" for grid in found]
    crowded = [grid.shape for grid in found if grid.workers > record["cores"]]
    if crowded:
        parts.append(f"More workers than cores: {', '.join(crowded)}; their seconds by the clock say little.")
    parts += [f"{grid.shape}, {n}: not run: {s.reason}." for grid in found for n, s in grid.sides.items() if s.reason]
    return "\n\n".join(parts) + "\n"


def grids(found: Sequence[Grid]) -> str:
    """The slides' summary: seconds of an iteration by grid, and CPU seconds of a cell."""
    lines: list[list[Cell]] = []
    for grid in found:
        wall = {name: _seconds(grid, name, partial(_wall, "overall")) for name in _NAMES[:2]}
        cpu = {name: _seconds(grid, name, partial(_cpu, "overall"), grid.cells) for name in _NAMES}
        one, many = SLIDES_MINUTES.get(grid.shape, (None, None))
        slides = None if one is None or many is None else one / many
        lines.append([grid.shape, wall[ONE_CORE], grid.workers, wall[WORKERS], grid.speed_up])
        lines[-1] += [_percent(grid.weak_scaling(_base(found))), cpu[ONE_CORE], cpu[WORKERS]]
        lines[-1] += [_percent(grid.core_efficiency), cpu[UPSTREAM], grid.upstream_ratio, slides]
        lines[-1] += [_percent(slides_weak(grid.shape))]
    return _table(_GRIDS, lines)


def by_routine(grid: Grid) -> str:
    """The slides' profile: seconds of an iteration by routine."""
    lines: list[list[Cell]] = []
    for name in (*routines(list(grid.sides.values())), "overall"):
        one, many = (_seconds(grid, of, partial(_wall, name)) for of in _NAMES[:2])
        cpu = [_seconds(grid, of, partial(_cpu, name)) for of in _NAMES]
        slides = SLIDES_ROUTINES.get(name)
        ratio = None if slides is None else slides[0] / slides[1]
        lines.append([name, one, many, None if not many or one is None else one / many, *cpu, ratio])
    head = ["routine", "one core, s", "distributed, s", "speed-up", "CPU s: one core", "distributed", UPSTREAM]
    return _table([*head, "slides: speed-up"], lines)


def _base(found: Sequence[Grid]) -> Grid:
    """The first that workers have trained."""
    return next((grid for grid in found if grid.has(WORKERS)), found[0])


def _seconds(grid: Grid, name: str, of: Callable[[Played], float], share: int = 1) -> float | None:
    return grid.sides[name].median(of) / share if grid.has(name) else None


def _wall(routine: str, played: Played) -> float:
    return played.wall_s if routine == "overall" else played.wall[routine]


def _cpu(routine: str, played: Played) -> float:
    return played.cpu_s if routine == "overall" else played.cpu[routine]


def _table(head: Sequence[str], lines: Sequence[Sequence[Cell]]) -> str:
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *([_shown(cell) for cell in line] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.3f}" if cell < 10 else f"{cell:.1f}"
    return str(cell)


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}"
