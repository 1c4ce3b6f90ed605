"""Terminal view of a grid of cells: the latest score of each cell and its loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from paragan.report.grid_record import Generation, Grid, Population
from paragan.report.heat_map import GridLayout
from paragan.report.population import best_cell_text
from paragan.report.scale import fit_scale, format_number, format_short

_MAX_NUMBERED_LINES = 16  # of a grid with numbers
_MAX_NUMBERED_COLUMNS = 8
_MAX_BLOCK_LINES = 32  # of a grid drawn in blocks
_MAX_BLOCK_COLUMNS = 39
_BLOCKS = "▁▂▃▄▅▆▇█"
_STYLES = ("green", "cyan", "", "yellow", "red")  # from the lowest score to the highest


def render_grid(population: Population) -> list[RenderableType]:
    """Return the lines of the view; empty without a grid or without a finished generation."""
    grid = population.grid
    latest = population.latest
    if grid is None or latest is None:
        return []
    title = Text(generation_text(population))
    layout = GridLayout.of(grid, _MAX_NUMBERED_COLUMNS)
    if layout.lines > _MAX_NUMBERED_LINES or layout.columns > _MAX_NUMBERED_COLUMNS:
        return [title, *_blocks(latest, GridLayout.of(grid, _MAX_BLOCK_COLUMNS))]
    letters = _letters(grid)
    legend = "  ".join(f"{letters[n]} {name}" for n, name in enumerate(grid.losses) if letters)
    parts: list[RenderableType] = [title, _table(latest, layout, letters)]
    return [*parts, Text(legend, "dim")] if legend else parts


def generation_text(population: Population) -> str:
    """Return the latest generation in a few words; empty without one."""
    if population.latest is None:
        return ""
    median = population.curves.get("score/median")
    words = [f"generation {population.latest.number:,}", best_cell_text(population.latest)]
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


def _blocks(latest: Generation, layout: GridLayout) -> list[RenderableType]:
    """Return a block per cell, low for a low score; empty for a grid larger than the screen."""
    if layout.lines > _MAX_BLOCK_LINES or layout.columns > _MAX_BLOCK_COLUMNS:
        return []
    scores = latest.of["score"]
    heights = _heights(scores)
    drawn = [
        Text("??", "dim")
        if height is None
        else Text(2 * _BLOCKS[int(height * 7.999)], _style(height, cell == latest.best))
        for cell, height in enumerate(heights)
    ]
    starts = range(0, len(drawn), layout.columns)
    return [Text.assemble(*drawn[i : i + layout.columns]) for i in starts]


def _heights(scores: Sequence[float]) -> list[float | None]:
    """Return relative heights, 0 (lowest score) to 1 (highest); None for an unscored cell."""
    scale = fit_scale([score for score in scores if math.isfinite(score)], 0.0, 1.0)
    return [1 - scale.at(score) if math.isfinite(score) else None for score in scores]


def _style(height: float, best: bool) -> str:
    style = _STYLES[min(4, int(5 * height))]
    return f"bold {style}" if best else style


def _tiles(latest: Generation, letters: str) -> Iterator[Text]:
    scores = latest.of["score"]
    losses = latest.of["loss"]
    values = zip(scores, losses, _heights(scores), strict=True)
    for cell, (score, loss, height) in enumerate(values):
        best = cell == latest.best
        letter = f" {letters[int(loss)] if loss < len(letters) else '?'}" if letters else ""
        tile = f"{'-' if height is None else format_short(score)}{'*' if best else ' '}{letter}"
        yield Text(tile, "dim" if height is None else _style(height, best))


def _letters(grid: Grid) -> str:
    """Return a letter or digit per loss, if possible initials; empty for fewer than two losses."""
    initials = "".join(name[:1] for name in grid.losses)
    if len(grid.losses) < 2:
        return ""
    distinct = len(set(initials)) == len(grid.losses) and initials.isalnum()
    return initials if distinct else "0123456789abcdef"[: len(grid.losses)]
