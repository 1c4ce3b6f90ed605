"""Population section of the report of a grid of cells: newest scores, curves, timing."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paragan.report import panels
from paragan.report.chart import View
from paragan.report.grid_record import EnsembleRecord, Generation, Grid, GridHistory
from paragan.report.scale import fit_scale, format_number, format_short

_PUBLISHED = ("gather", "train", "update_genomes", "mutate")  # order of Perez et al. 2020
_RING_COLUMNS = 16  # cells of a ring per line
_MAX_NUMBERED_CELLS = 1024  # of a table with numbers
_MAX_NUMBERED_COLUMNS = 40
_SHADES = 9


@dataclass(frozen=True)
class Tile:
    """Cell of the table of scores. shade: style, from the lowest score to the highest. loss: letter."""

    shade: str
    score: str
    loss: str
    is_best: bool


def population_section(history: GridHistory, end: Mapping[str, float]) -> View | None:
    """Return the values of the template; None for a run without a grid or without a finished generation."""
    grid = history.grid
    latest = history.latest
    if grid is None or latest is None:
        return None
    is_ring = min(grid.rows, grid.columns) == 1
    columns = min(_RING_COLUMNS, grid.cells) if is_ring else grid.columns
    known = [score for score in latest.scores if math.isfinite(score)]
    tiles = list(_tiles(grid, latest, known)) if known else []
    notes = (
        _section_note(grid, latest),
        _mixture_text(grid, latest, history.weights),
        _ensemble_text(latest, history.ensemble),
    )
    return {
        "notes": [note for note in notes if note],
        "columns": columns,
        "lines": [tiles[i : i + columns] for i in range(0, len(tiles), columns)],
        "has_numbers": columns <= _MAX_NUMBERED_COLUMNS and grid.cells <= _MAX_NUMBERED_CELLS,
        "losses": grid.lettered_losses(),
        "ramp": (format_short(min(known)), format_short(max(known))) if known else ("", ""),
        "is_log": fit_scale(known).log,
        "charts": panels.section_charts("population", history.curves, end),
        "profile": _profile_rows(history, grid.cells),
        "profiled": history.profiled,
    }


def _tiles(grid: Grid, latest: Generation, known: Sequence[float]) -> Iterator[Tile]:
    """Yield the tile of each cell. known: the finite scores."""
    letters = [letter for letter, _ in grid.lettered_losses()]
    scale = fit_scale(known)
    best = latest.best
    for cell, (score, loss) in enumerate(zip(latest.scores, latest.losses, strict=True)):
        shade = f"h{min(_SHADES - 1, int(scale.share(score) * _SHADES))}" if math.isfinite(score) else "hx"
        letter = letters[loss] if loss is not None and loss < len(letters) else ""
        yield Tile(shade, format_short(score) if math.isfinite(score) else "–", letter, cell == best)


def _section_note(grid: Grid, latest: Generation) -> str:
    position = f"{grid.shape_text} after generation {latest.number:,}."
    if latest.best is None:
        return f"{position} No mixture was scored, so there is no best cell."
    metric = f" by {grid.scored_by}" if grid.scored_by else ""
    return f"{position} Best mixture: cell {latest.best} with {format_number(latest.scores[latest.best])}{metric}."


def _mixture_text(grid: Grid, latest: Generation, weights: Sequence[float]) -> str:
    """Return the share of the best cell's images that each G of its neighbourhood generates; empty if unknown."""
    if latest.best is None or not any(weight > 0 for weight in weights):
        return ""
    members = grid.neighbours[latest.best] if latest.best < len(grid.neighbours) else ()
    if len(members) == len(weights):
        names = [f"cell {cell}" + (" (itself)" if cell == latest.best else "") for cell in members]
    else:  # the neighbourhood is unknown
        names = ["itself", *(f"neighbour {n}" for n in range(1, len(weights)))]
    pairs = zip(names, weights, strict=True)
    return f"Mixture of cell {latest.best}: " + ", ".join(f"{name} {_figure_or_dash(w)}" for name, w in pairs) + "."


def _ensemble_text(latest: Generation, ensemble: EnsembleRecord | None) -> str:
    """Return how often each cell's G was selected from the whole grid after training, and the score."""
    if ensemble is None:
        return ""
    counts = ", ".join(f"cell {cell} ×{count}" for cell, count in ensemble.counts)
    text = f"Ensemble of {sum(count for _, count in ensemble.counts):,}, selected after training: {counts}."
    if not math.isfinite(ensemble.distance):
        return text
    than = ""
    if latest.best is not None:
        is_better = ensemble.distance < latest.scores[latest.best]
        than = f", {'better' if is_better else 'not better'} than the best mixture"
    return f"{text} Score: {format_number(ensemble.distance)}{than}."


def _profile_rows(history: GridHistory, cells: int) -> list[tuple[str, ...]]:
    """Return rows: routine, wall s, CPU s, share of wall time, wall s per cell and generation."""
    walls = history.wall_s
    if not walls:
        return []
    names = dict.fromkeys([*(name for name in _PUBLISHED if name in walls), *walls])
    times = [(name, walls[name], history.cpu_s[name]) for name in names]
    total = sum(walls.values())
    times.append(("overall", total, sum(history.cpu_s.values())))
    per_cell = cells * max(1, history.profiled)
    rows: list[tuple[str, ...]] = []
    for name, wall, cpu in times:
        share = f"{wall / total:.1%}" if 0 < total < math.inf else "–"
        rows.append((name, format_number(wall), _figure_or_dash(cpu), share, format_number(wall / per_cell)))
    return rows


def _figure_or_dash(value: float) -> str:
    return format_number(value) if math.isfinite(value) else "–"
