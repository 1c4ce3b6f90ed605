"""A grid of cells as a terminal shows it: the newest score of each, and which loss it trained with."""

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

_LINES, _COLUMNS = 16, 8  # of the largest grid whose numbers have room beside everything else
_MOST_LINES, _MOST_COLUMNS = 32, 39  # of the largest that is drawn in blocks
_BLOCKS = "▁▂▃▄▅▆▇█"
_STYLES = ("green", "cyan", "", "yellow", "red")  # from the lowest score to the highest


def render_grid(population: Population) -> list[RenderableType]:
    """From top to bottom; nothing for a run that is no grid, or of which no generation is over."""
    grid, newest = population.grid, population.newest
    if grid is None or newest is None:
        return []
    folded = GridLayout.of(grid, _COLUMNS)
    if folded.lines > _LINES or folded.columns > _COLUMNS:
        return [Text(generation_text(population)), *_blocks(newest, GridLayout.of(grid, _MOST_COLUMNS))]
    letters = _letters(grid)
    legend = "  ".join([f"{letters[n]} {name}" for n, name in enumerate(grid.losses)] if letters else [])
    parts: list[RenderableType] = [Text(generation_text(population)), _table(newest, folded, letters)]
    return [*parts, Text(legend, "dim")] if legend else parts


def generation_text(population: Population) -> str:
    """The newest generation in a few words; empty where there is none."""
    if population.newest is None:
        return ""
    middle = population.curves.get("score/median")
    words = [f"generation {population.newest.number:,}", best_cell_text(population.newest)]
    return "  ".join([*(word for word in words if word), *([f"median {format_number(middle.last)}"] if middle else [])])


def _table(newest: Generation, folded: GridLayout, letters: str) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for _ in range(folded.columns):
        table.add_column(justify="right", no_wrap=True)
    tiles = list(_tiles(newest, letters))
    for first in range(0, len(tiles), folded.columns):
        table.add_row(*tiles[first : first + folded.columns])
    return table


def _blocks(newest: Generation, folded: GridLayout) -> list[RenderableType]:
    """A block for each cell, low where its score is; none of a grid that would fill the screen."""
    if folded.lines > _MOST_LINES or folded.columns > _MOST_COLUMNS:
        return []
    scores = newest.of["score"]
    heights = _heights(scores)
    drawn = [
        Text("??", "dim") if at is None else Text(2 * _BLOCKS[int(at * 7.999)], _style(at, cell == newest.best))
        for cell, at in enumerate(heights)
    ]
    return [Text.assemble(*drawn[i : i + folded.columns]) for i in range(0, len(drawn), folded.columns)]


def _heights(scores: Sequence[float]) -> list[float | None]:
    """Between the lowest, 0, and the highest, 1; None for a cell without a score."""
    scale = fit_scale([score for score in scores if math.isfinite(score)], 0.0, 1.0)
    return [1 - scale.at(score) if math.isfinite(score) else None for score in scores]


def _style(height: float, best: bool) -> str:
    style = _STYLES[min(4, int(5 * height))]
    return f"bold {style}" if best else style


def _tiles(newest: Generation, letters: str) -> Iterator[Text]:
    scores, losses = newest.of["score"], newest.of["loss"]
    for cell, (score, loss, height) in enumerate(zip(scores, losses, _heights(scores), strict=True)):
        best = cell == newest.best
        letter = f" {letters[int(loss)] if loss < len(letters) else '?'}" if letters else ""
        told = f"{'-' if height is None else format_short(score)}{'*' if best else ' '}{letter}"
        yield Text(told, "dim" if height is None else _style(height, best))


def _letters(grid: Grid) -> str:
    """One for each loss: of its name where they differ, else a number; none where nothing is drawn."""
    initials = "".join(name[:1] for name in grid.losses)
    if len(grid.losses) < 2:
        return ""
    distinct = len(set(initials)) == len(grid.losses) and initials.isalnum()
    return initials if distinct else "0123456789abcdef"[: len(grid.losses)]
