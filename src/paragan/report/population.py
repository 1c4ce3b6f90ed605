"""What the page tells of a grid of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paragan.report import panels
from paragan.report.curves import Chart
from paragan.report.grid_record import Ensemble, Generation, Grid, Population
from paragan.report.heat_map import Folded, Map, maps, num_small
from paragan.report.scale import figure

_PUBLISHED = ("gather", "train", "update_genomes", "mutate")  # in the order of Perez et al. 2020
_NARROW, _MIDDLE = 6, 9  # columns of maps that lie side by side


@dataclass(frozen=True)
class Bars:
    """rows: (name, length 0..100, value)."""

    title: str
    note: str
    rows: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class PopulationPanels:
    """The section. width: narrow, middle or wide, how much room a map takes. profile: rows of its table."""

    note: str
    charts: list[Chart]
    bars: tuple[Bars, ...]
    maps: list[Map]
    folded: Folded
    width: str
    profile: list[tuple[str, ...]]
    profiled: int


def view(population: Population, kimg: float) -> PopulationPanels | None:
    """None for a run that is no grid, or of which no generation is over."""
    grid, newest = population.grid, population.newest
    if grid is None or newest is None:
        return None
    count, folded = num_small(grid), Folded.of(grid)
    shown = population.shown(count) if count > 1 else [newest]
    wide = folded.columns if folded.has_numbers else 0
    bars = (_mixture(grid, newest, population.weights), _ensemble(newest, population.ensemble))
    return PopulationPanels(
        _note(grid, newest),
        panels.panels("population", population.curves, kimg),
        tuple(one for one in bars if one is not None),
        maps(grid, shown),
        folded,
        "narrow" if wide < _NARROW else "middle" if wide < _MIDDLE else "wide",
        _profile(population, grid.cells),
        population.profiled,
    )


def standing(newest: Generation) -> str:
    """Which cell is best, in a few words; empty where nothing was scored."""
    if newest.best is None:
        return ""
    return f"best cell {newest.best}: {figure(newest.of['score'][newest.best])}"


def shape(grid: Grid | None) -> str:
    """Of the head of the page."""
    return "" if grid is None else f"{grid.rows:,} × {grid.columns:,} cells"


def _note(grid: Grid, newest: Generation) -> str:
    where = f"{shape(grid)} after generation {newest.number:,}."
    if newest.best is None:
        return f"{where} No mixture was scored, so no cell is the best."
    score = figure(newest.of["score"][newest.best]) + (f" by {grid.scored_by}" if grid.scored_by else "")
    return f"{where} The mixture of cell {newest.best} is the nearest to real images, at {score}; it is ringed below."


def _mixture(grid: Grid, newest: Generation, weights: Sequence[float]) -> Bars | None:
    if newest.best is None or not any(weight > 0 for weight in weights):
        return None
    members = grid.neighbours[newest.best] if newest.best < len(grid.neighbours) else ()
    if len(members) == len(weights):
        names = [f"cell {cell}" + (", itself" if cell == newest.best else "") for cell in members]
    else:  # nobody told whom it reads
        names = ["itself", *(f"neighbour {n}" for n in range(1, len(weights)))]
    note = "Which share of the best cell's images comes from its own G, and which from its neighbours'."
    return Bars(f"Mixture of cell {newest.best}", note, _rows(names, weights))


def _ensemble(newest: Generation, found: Ensemble | None) -> Bars | None:
    if found is None:
        return None
    best = math.nan if newest.best is None else newest.of["score"][newest.best]
    than = "nearer than" if found.distance < best else "no nearer than" if found.distance >= best else ""
    at = f", at {figure(found.distance)}" if math.isfinite(found.distance) else ""
    told = f"{at}, {than} the best mixture" if than else at
    names, counts = [f"cell {cell}" for cell, _ in found.counts], [float(count) for _, count in found.counts]
    note = f"How many parts each cell's G has in the ensemble that was picked from the whole grid after training{told}."
    return Bars(f"Ensemble of {sum(counts):,.0f}", note, _rows(names, counts))


def _rows(names: Sequence[str], values: Sequence[float]) -> tuple[tuple[str, float, str], ...]:
    most = max(value for value in values if math.isfinite(value))
    lengths = (round(100 * (max(0.0, v) / most), 1) for v in values)  # 0 where it is not a number: nothing is more
    texts = (figure(value) if math.isfinite(value) else "–" for value in values)
    return tuple(zip(names, lengths, texts, strict=True))


def _profile(population: Population, cells: int) -> list[tuple[str, ...]]:
    """Routine, wall seconds, CPU seconds, share of the wall, and wall seconds per cell and generation."""
    walls = population.wall_s
    names = [*(name for name in _PUBLISHED if name in walls), *(name for name in walls if name not in _PUBLISHED)]
    times = [(name, walls[name], population.cpu_s[name]) for name in names]
    times.append(("overall", sum(wall for _, wall, _ in times), sum(cpu for _, _, cpu in times)))
    total, each = times[-1][1], cells * max(1, population.profiled)
    return [
        (name, figure(wall), _told(cpu), f"{wall / total:.1%}" if 0 < total < math.inf else "–", figure(wall / each))
        for name, wall, cpu in (times if names else ())
    ]


def _told(value: float) -> str:
    return figure(value) if math.isfinite(value) else "–"
