"""Population section of the report of a grid of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paragan.report import panels
from paragan.report.charts import Chart
from paragan.report.grid_record import EnsembleRecord, Generation, Grid, GridHistory
from paragan.report.heat_map import GridLayout, HeatMap, heat_maps, num_past_maps
from paragan.report.plot import RunPosition
from paragan.report.scale import format_number

_PUBLISHED = ("gather", "train", "update_genomes", "mutate")  # order of Perez et al. 2020
_MAX_NARROW = 6  # columns of maps of these widths
_MAX_MIDDLE = 9


@dataclass(frozen=True)
class Bars:
    """Bar chart. rows: (name, length 0..100, value)."""

    title: str
    note: str
    rows: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class PopulationSection:
    """Content of the population section of the report."""

    note: str
    charts: list[Chart]
    bars: tuple[Bars, ...]
    heat_maps: list[HeatMap]
    layout: GridLayout
    width: str  # of a map: narrow, middle or wide
    profile: list[tuple[str, ...]]  # rows of the timing table
    profiled: int


def population_section(history: GridHistory, end: RunPosition) -> PopulationSection | None:
    """Return the section; None for a run without a grid or without a finished generation."""
    grid = history.grid
    latest = history.latest
    if grid is None or latest is None:
        return None
    generations = history.select_generations(num_past_maps(grid))
    layout = GridLayout.of(grid)
    columns = layout.columns if layout.has_numbers else 0
    bars = (_mixture_bars(grid, latest, history.weights), _ensemble_bars(latest, history.ensemble))
    return PopulationSection(
        _section_note(grid, latest),
        panels.section_charts("population", history.curves, end),
        tuple(chart for chart in bars if chart is not None),
        heat_maps(grid, generations),
        layout,
        "narrow" if columns < _MAX_NARROW else "middle" if columns < _MAX_MIDDLE else "wide",
        _profile_rows(history, grid.cells),
        history.profiled,
    )


def best_cell_text(latest: Generation) -> str:
    """Return the best cell and its score in a few words; empty if no cell was scored."""
    if latest.best is None:
        return ""
    return f"best cell {latest.best}: {format_number(latest.of['score'][latest.best])}"


def grid_shape_text(grid: Grid | None) -> str:
    """Return the shape of the grid for the header of the report."""
    return "" if grid is None else f"{grid.rows:,} × {grid.columns:,} cells"


def _section_note(grid: Grid, latest: Generation) -> str:
    position = f"{grid_shape_text(grid)} after generation {latest.number:,}."
    if latest.best is None:
        return f"{position} No mixture was scored, so there is no best cell."
    metric = f" by {grid.scored_by}" if grid.scored_by else ""
    best = f"cell {latest.best} with {format_number(latest.of['score'][latest.best])}{metric}"
    return f"{position} Best mixture: {best}; it is outlined in the maps below."


def _mixture_bars(grid: Grid, latest: Generation, weights: Sequence[float]) -> Bars | None:
    if latest.best is None or not any(weight > 0 for weight in weights):
        return None
    members = grid.neighbours[latest.best] if latest.best < len(grid.neighbours) else ()
    if len(members) == len(weights):
        names = [f"cell {cell}" + (" (itself)" if cell == latest.best else "") for cell in members]
    else:  # the neighbourhood is unknown
        names = ["itself", *(f"neighbour {n}" for n in range(1, len(weights)))]
    note = "Share of the images of the best cell that each G of its neighbourhood generates."
    return Bars(f"Mixture of cell {latest.best}", note, _bar_rows(names, weights))


def _ensemble_bars(latest: Generation, ensemble: EnsembleRecord | None) -> Bars | None:
    if ensemble is None:
        return None
    names = [f"cell {cell}" for cell, _ in ensemble.counts]
    counts = [float(count) for _, count in ensemble.counts]
    note = "Number of times each cell's G was selected from the whole grid after training."
    if math.isfinite(ensemble.distance):
        note += f" Score: {format_number(ensemble.distance)}"
        if latest.best is not None:
            is_better = ensemble.distance < latest.of["score"][latest.best]
            note += f", {'better' if is_better else 'not better'} than the best mixture"
        note += "."
    return Bars(f"Ensemble of {sum(counts):,.0f}", note, _bar_rows(names, counts))


def _bar_rows(names: Sequence[str], values: Sequence[float]) -> tuple[tuple[str, float, str], ...]:
    highest = max(value for value in values if math.isfinite(value))
    lengths = (round(100 * (max(0.0, v) / highest), 1) for v in values)  # NaN becomes 0
    return tuple(zip(names, lengths, map(_figure_or_dash, values), strict=True))


def _profile_rows(history: GridHistory, cells: int) -> list[tuple[str, ...]]:
    """Return rows: routine, wall s, CPU s, share of wall time, wall s per cell and generation."""
    walls = history.wall_s
    if not walls:
        return []
    names = dict.fromkeys([*(name for name in _PUBLISHED if name in walls), *walls])
    times = [(name, walls[name], history.cpu_s[name]) for name in names]
    total = sum(walls.values())
    times.append(("overall", total, sum(history.cpu_s.values())))
    num_trainings = cells * max(1, history.profiled)
    return [
        (
            name,
            format_number(wall),
            _figure_or_dash(cpu),
            f"{wall / total:.1%}" if 0 < total < math.inf else "–",
            format_number(wall / num_trainings),
        )
        for name, wall, cpu in times
    ]


def _figure_or_dash(value: float) -> str:
    return format_number(value) if math.isfinite(value) else "–"
