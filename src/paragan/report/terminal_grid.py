"""Terminal view of a grid of cells: the latest score of each cell and its loss."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from paragan.report.grid_record import Generation, Grid, GridHistory
from paragan.report.heat_map import GridLayout
from paragan.report.population import best_cell_text
from paragan.report.scale import fit_scale, format_number, format_short

_MAX_LINES = 16  # of a table
_MAX_COLUMNS = 8
_STYLES = ("green", "cyan", "", "yellow", "red")  # from the lowest score to the highest


def render_grid(history: GridHistory) -> list[RenderableType]:
    """Return the view: a table, for a large grid only its best cell; empty without a generation."""
    grid = history.grid
    latest = history.latest
    if grid is None or latest is None:
        return []
    title = Text(generation_text(history))
    layout = GridLayout.of(grid, _MAX_COLUMNS)
    if layout.lines > _MAX_LINES or layout.columns > _MAX_COLUMNS:
        return [title]
    letters = _letters(grid)
    legend = "  ".join(f"{letters[n]} {name}" for n, name in enumerate(grid.losses) if letters)
    parts: list[RenderableType] = [title, _table(latest, layout, letters)]
    return [*parts, Text(legend, "dim")] if legend else parts


def generation_text(history: GridHistory) -> str:
    """Return the latest generation in a few words; empty without one."""
    if history.latest is None:
        return ""
    median = history.curves.get("score/median")
    words = [f"generation {history.latest.number:,}", best_cell_text(history.latest)]
    words += [f"median {format_number(median.last)}"] if median else []
    return "  ".join(word for word in words if word)


def _table(latest: Generation, layout: GridLayout, letters: str) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for _ in range(layout.columns):
        table.add_column(justify="right", no_wrap=True)
    tiles = list(_tiles(latest, letters))
    for first in range(0, len(tiles), layout.columns):
        table.add_row(*tiles[first : first + layout.columns])
    return table


def _tiles(latest: Generation, letters: str) -> Iterator[Text]:
    scores = latest.of["score"]
    losses = latest.of["loss"]
    scale = fit_scale([score for score in scores if math.isfinite(score)], 0.0, 1.0)
    for cell, (score, loss) in enumerate(zip(scores, losses, strict=True)):
        best = cell == latest.best
        letter = f" {letters[int(loss)] if loss < len(letters) else '?'}" if letters else ""
        value = format_short(score) if math.isfinite(score) else "-"
        tile = f"{value}{'*' if best else ' '}{letter}"
        style = _STYLES[min(4, int(5 * (1 - scale.at(score))))] if math.isfinite(score) else "dim"
        yield Text(tile, f"bold {style}" if best else style)


def _letters(grid: Grid) -> str:
    """Return a letter or digit per loss, if possible initials; empty for fewer than two losses."""
    initials = "".join(name[:1] for name in grid.losses)
    if len(grid.losses) < 2:
        return ""
    distinct = len(set(initials)) == len(grid.losses) and initials.isalnum()
    return initials if distinct else "0123456789abcdef"[: len(grid.losses)]
