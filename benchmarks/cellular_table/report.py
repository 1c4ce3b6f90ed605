"""JSON and Markdown files of the cellular tables: the slides' two tables, measured on this machine."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cellular_table.rows import (
    ONE_CORE,
    SLIDES_MINUTES,
    SLIDES_ROUTINES,
    UPSTREAM,
    WORKERS,
    CellularOptions,
    GridResult,
    Iteration,
    routines,
    slides_weak_scaling,
)
from benchmarks.record import machine
from paragan.core.files import write_text
from paragan.core.process_environment import num_cores

Cell = float | int | str | None
_NAMES = (ONE_CORE, WORKERS, UPSTREAM)
_GRID_COLUMNS = (
    *("grid", "one core, s", "workers", "distributed, s", "speed-up", "weak scaling"),
    *("CPU s per cell: one core", "distributed", "CPU efficiency", UPSTREAM, "upstream / one core"),
    *("slides: speed-up", "slides: weak scaling"),
)
_ROUTINE_COLUMNS = (
    *("routine", "one core, s", "distributed, s", "speed-up"),
    *("CPU s: one core", "distributed", UPSTREAM, "slides: speed-up"),
)


def write(options: CellularOptions, results: Sequence[GridResult], out: Path, today: str, complete: bool) -> list[Path]:
    """Write both files to `out` and return their paths. today: date of the first measurement."""
    record: dict[str, Any] = {
        "date": today,
        "machine": machine(),
        "cores": num_cores(),
        "torch": importlib.metadata.version("torch"),
        "threads": 1,
        "complete": complete,
        "note": note(options),
        "options": {key: value for key, value in asdict(options).items() if key != "mnist"},
        "grids": [grid_to_json(grid, _base(results)) for grid in results],
        "slides": {"minutes": SLIDES_MINUTES, "routines": SLIDES_ROUTINES},
    }
    texts = {"json": json.dumps(record, indent=1) + "\n", "md": page(record, results)}
    paths = [out / f"{today}-cellular.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths


def grid_to_json(grid: GridResult, base: GridResult) -> dict[str, Any]:
    """A grid as plain JSON values. base: the grid its weak scaling is relative to."""
    methods: dict[str, Any] = {}
    for name, method in grid.methods.items():
        iterations = [asdict(iteration) for iteration in method.iterations]
        methods[name] = {"iterations": iterations} if iterations else {"not_run": method.reason}
    return {
        "shape": grid.shape,
        "cells": grid.cells,
        "workers": grid.workers,
        "speed_up": grid.speed_up,
        "weak_scaling": grid.weak_scaling(base),
        "cpu_efficiency": grid.core_efficiency,
        "upstream_over_one_core": grid.upstream_ratio,
        "methods": methods,
    }


def note(options: CellularOptions) -> str:
    """What a reader of the numbers has to know."""
    return (
        f"an iteration of {options.batches} batches of 100 (the slides: 600) on MNIST, medians of "
        f"{options.iterations}; one thread per process; wall: elapsed seconds, per routine the mean over the workers; "
        "CPU: seconds of all processes together. Weak scaling: seconds per cell of the fullest worker on the first "
        "grid divided by those here. CPU efficiency: CPU seconds on one core divided by those of all workers. "
        "Upstream-style: our loop, written from a description of the public implementation, with the same settings on "
        "one core; its first iteration, the cheapest, is counted. The slides do not specify the grid and the unit of "
        "their routines, nor what exactly each includes; ours are: gather: genomes of the neighbours; evaluate: "
        "fitness; update_genomes: cloning and replacement; mutate: learning rates and losses; train: training steps; "
        "score: mixtures"
    )


def page(record: dict[str, Any], results: Sequence[GridResult]) -> str:
    """The report in Markdown."""
    about = f"{record['date']}, {record['machine']}, {record['cores']} cores, torch {record['torch']}"
    title = "# Cellular training: one core and distributed"
    blocks = [f"{title}\n\n{about}: {record['note']}.", grid_table(results)]
    blocks += [f"## {grid.shape}\n\n{routine_table(grid)}" for grid in results]
    crowded = [grid.shape for grid in results if grid.workers > record["cores"]]
    if crowded:
        blocks.append(f"More workers than cores: {', '.join(crowded)}; their elapsed times are not meaningful.")
    for grid in results:
        reasons = {name: method.reason for name, method in grid.methods.items() if method.reason}
        blocks += [f"{grid.shape}, {name}: not run: {reason}." for name, reason in reasons.items()]
    return "\n\n".join(blocks) + "\n"


def grid_table(results: Sequence[GridResult]) -> str:
    """The slides' summary: seconds of an iteration per grid, and CPU seconds per cell."""
    lines: list[list[Cell]] = []
    for grid in results:
        wall = {name: _seconds(grid, name, partial(_wall, "overall")) for name in _NAMES[:2]}
        cpu = {name: _seconds(grid, name, partial(_cpu, "overall"), grid.cells) for name in _NAMES}
        minutes = SLIDES_MINUTES.get(grid.shape)
        slides = None if minutes is None else minutes[0] / minutes[1]
        lines.append(
            [
                grid.shape,
                wall[ONE_CORE],
                grid.workers,
                wall[WORKERS],
                grid.speed_up,
                _percent(grid.weak_scaling(_base(results))),
                cpu[ONE_CORE],
                cpu[WORKERS],
                _percent(grid.core_efficiency),
                cpu[UPSTREAM],
                grid.upstream_ratio,
                slides,
                _percent(slides_weak_scaling(grid.shape)),
            ]
        )
    return _table(_GRID_COLUMNS, lines)


def routine_table(grid: GridResult) -> str:
    """The slides' profile: seconds of an iteration per routine."""
    lines: list[list[Cell]] = []
    for routine in (*routines(list(grid.methods.values())), "overall"):
        one_core, distributed = (_seconds(grid, name, partial(_wall, routine)) for name in _NAMES[:2])
        speed_up = None if not distributed or one_core is None else one_core / distributed
        cpu = [_seconds(grid, name, partial(_cpu, routine)) for name in _NAMES]
        seconds = SLIDES_ROUTINES.get(routine)
        slides = None if seconds is None else seconds[0] / seconds[1]
        lines.append([routine, one_core, distributed, speed_up, *cpu, slides])
    return _table(_ROUTINE_COLUMNS, lines)


def _base(results: Sequence[GridResult]) -> GridResult:
    """The first grid that was trained by workers."""
    return next((grid for grid in results if grid.has(WORKERS)), results[0])


def _seconds(grid: GridResult, name: str, value: Callable[[Iteration], float], divisor: int = 1) -> float | None:
    return grid.methods[name].median(value) / divisor if grid.has(name) else None


def _wall(routine: str, iteration: Iteration) -> float:
    return iteration.wall_s if routine == "overall" else iteration.wall[routine]


def _cpu(routine: str, iteration: Iteration) -> float:
    return iteration.cpu_s if routine == "overall" else iteration.cpu[routine]


def _table(head: Sequence[str], lines: Sequence[Sequence[Cell]]) -> str:
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *(list(map(_format, line)) for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _format(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.3f}" if cell < 10 else f"{cell:.1f}"
    return str(cell)


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}"
