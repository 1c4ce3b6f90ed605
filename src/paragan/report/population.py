"""What the page tells of a grid of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paragan.report import panels
from paragan.report.charts import Chart
from paragan.report.grid_record import Ensemble, Generation, Grid, Population
from paragan.report.heat_map import GridLayout, HeatMap, heat_maps, num_past_maps
from paragan.report.scale import format_number

_PUBLISHED = ("gather", "train", "update_genomes", "mutate")  # in the order of Perez et al. 2020
_NARROW, _MIDDLE = 6, 9  # columns of maps that lie side by side


@dataclass(frozen=True)
class Bars:
    """rows: (name, length 0..100, value)."""

    title: str
    note: str
    rows: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class PopulationSection:
    """The section. width: narrow, middle or wide, how much room a map takes. profile: rows of its table."""

    note: str
    charts: list[Chart]
    bars: tuple[Bars, ...]
    heat_maps: list[HeatMap]
    folded: GridLayout
    width: str
    profile: list[tuple[str, ...]]
    profiled: int


def population_section(population: Population, kimg: float) -> PopulationSection | None:
    """None for a run that is no grid, or of which no generation is over."""
    grid, newest = population.grid, population.newest
    if grid is None or newest is None:
        return None
    count, folded = num_past_maps(grid), GridLayout.of(grid)
    shown = population.select_generations(count) if count > 1 else [newest]
    wide = folded.columns if folded.has_numbers else 0
    bars = (_mixture_bars(grid, newest, population.weights), _ensemble_bars(newest, population.ensemble))
    return PopulationSection(
        _section_note(grid, newest),
        panels.section_charts("population", population.curves, kimg),
        tuple(one for one in bars if one is not None),
        heat_maps(grid, shown),
        folded,
        "narrow" if wide < _NARROW else "middle" if wide < _MIDDLE else "wide",
        _profile_rows(population, grid.cells),
        population.profiled,
    )


def best_cell_text(newest: Generation) -> str:
    """Which cell is best, in a few words; empty where nothing was scored."""
    if newest.best is None:
        return ""
    return f"best cell {newest.best}: {format_number(newest.of['score'][newest.best])}"


def grid_shape_text(grid: Grid | None) -> str:
    """Of the head of the page."""
    return "" if grid is None else f"{grid.rows:,} × {grid.columns:,} cells"


def _section_note(grid: Grid, newest: Generation) -> str:
    where = f"{grid_shape_text(grid)} after generation {newest.number:,}."
    if newest.best is None:
        return f"{where} No mixture was scored, so no cell is the best."
    score = format_number(newest.of["score"][newest.best]) + (f" by {grid.scored_by}" if grid.scored_by else "")
    return f"{where} The mixture of cell {newest.best} is the nearest to real images, at {score}; it is ringed below."


def _mixture_bars(grid: Grid, newest: Generation, weights: Sequence[float]) -> Bars | None:
    if newest.best is None or not any(weight > 0 for weight in weights):
        return None
    members = grid.neighbours[newest.best] if newest.best < len(grid.neighbours) else ()
    if len(members) == len(weights):
        names = [f"cell {cell}" + (", itself" if cell == newest.best else "") for cell in members]
    else:  # nobody told whom it reads
        names = ["itself", *(f"neighbour {n}" for n in range(1, len(weights)))]
    note = "Which share of the best cell's images comes from its own G, and which from its neighbours'."
    return Bars(f"Mixture of cell {newest.best}", note, _bar_rows(names, weights))


def _ensemble_bars(newest: Generation, found: Ensemble | None) -> Bars | None:
    if found is None:
        return None
    best = math.nan if newest.best is None else newest.of["score"][newest.best]
    than = "nearer than" if found.distance < best else "no nearer than" if found.distance >= best else ""
    at = f", at {format_number(found.distance)}" if math.isfinite(found.distance) else ""
    told = f"{at}, {than} the best mixture" if than else at
    names, counts = [f"cell {cell}" for cell, _ in found.counts], [float(count) for _, count in found.counts]
    note = f"How many parts each cell's G has in the ensemble that was picked from the whole grid after training{told}."
    return Bars(f"Ensemble of {sum(counts):,.0f}", note, _bar_rows(names, counts))


def _bar_rows(names: Sequence[str], values: Sequence[float]) -> tuple[tuple[str, float, str], ...]:
    most = max(value for value in values if math.isfinite(value))
    lengths = (round(100 * (max(0.0, v) / most), 1) for v in values)  # 0 where it is not a number: nothing is more
    texts = (format_number(value) if math.isfinite(value) else "–" for value in values)
    return tuple(zip(names, lengths, texts, strict=True))


def _profile_rows(population: Population, cells: int) -> list[tuple[str, ...]]:
    """Routine, wall seconds, CPU seconds, share of the wall, and wall seconds per cell and generation."""
    walls = population.wall_s
    names = [*(name for name in _PUBLISHED if name in walls), *(name for name in walls if name not in _PUBLISHED)]
    times = [(name, walls[name], population.cpu_s[name]) for name in names]
    times.append(("overall", sum(wall for _, wall, _ in times), sum(cpu for _, _, cpu in times)))
    total, each = times[-1][1], cells * max(1, population.profiled)
    return [
        (
            name,
            format_number(wall),
            _figure_or_dash(cpu),
            f"{wall / total:.1%}" if 0 < total < math.inf else "–",
            format_number(wall / each),
        )
        for name, wall, cpu in (times if names else ())
    ]


def _figure_or_dash(value: float) -> str:
    return format_number(value) if math.isfinite(value) else "–"
