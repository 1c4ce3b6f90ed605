"""Maps of a grid of cells: shades by value, as tiles with numbers and as small drawings; the template escapes them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from paragan.report.grid_record import Generation, Grid
from paragan.report.scale import Scale, fit_scale, format_short

_SHADES, _TONES = 9, 8  # h0 (low) … h8 (high); c0 … c7, of which the last is for all the rest
_UNKNOWN, _HOME = "hx", "home"
_FOLD = 16  # cells of a ring to a line
_WITH_NUMBERS, _WIDEST = 1024, 40  # cells and columns of the largest map that has numbers
_NAMED = 3  # columns of the widest map with names in its tiles
_SMALL, _SMALL_CELLS = 12, 4096  # at most so many small maps, and cells in all of them


@dataclass(frozen=True)
class Tile:
    """shade: a class of the style. mark: whether this is the best cell."""

    cell: int
    shade: str
    text: str
    mark: bool


@dataclass(frozen=True)
class MapDrawing:
    """paths: (shade, as SVG wants it), one unit a cell. best: (column, line) of the best cell."""

    generation: int
    span: str
    paths: tuple[tuple[str, str], ...]
    best: tuple[int, int] | None


@dataclass(frozen=True)
class HeatMap:
    """One quantity over the grid. lines: of tiles, or none where there are too many; whole: the same drawn. past: small
    drawings, the newest last. ramp: its ends as numbers. log: whether shades follow the logarithm. legend: (shade, what
    it means).
    """

    id: str
    title: str
    note: str
    lines: tuple[tuple[Tile, ...], ...]
    whole: MapDrawing
    past: tuple[MapDrawing, ...]
    ramp: tuple[str, ...] = ()
    log: bool = False
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class GridLayout:
    """How the grid is drawn: a ring in several lines."""

    lines: int
    columns: int

    @classmethod
    def of(cls, grid: Grid, ring_columns: int = _FOLD) -> GridLayout:
        if min(grid.rows, grid.columns) == 1:
            columns = min(ring_columns, grid.cells)
            return cls(-(-grid.cells // columns), columns)
        return cls(grid.rows, grid.columns)

    @property
    def has_numbers(self) -> bool:
        return self.lines * self.columns <= _WITH_NUMBERS and self.columns <= _WIDEST


@dataclass(frozen=True)
class Measure:
    """A number of each cell. own_scale: the shades run over the values of each generation by itself."""

    id: str
    title: str
    note: str
    of: Callable[[Generation], Sequence[float]]
    own_scale: bool = False
    floor: float | None = None


MEASURES = (
    Measure(
        "score",
        "Score of the mixture",
        "How far the images of each cell's mixture are from real ones: low is good.",
        lambda one: one.of["score"],
        own_scale=True,
    ),
    Measure(
        "fitness-g",
        "Fitness of G",
        "Loss of each cell's G against the D's around it: low is fit.",
        lambda one: one.of["g/fitness"],
        own_scale=True,
    ),
    Measure(
        "fitness-d",
        "Fitness of D",
        "Loss of each cell's D against the G's around it: low is fit.",
        lambda one: one.of["d/fitness"],
        own_scale=True,
    ),
    Measure(
        "lr-g",
        "Learning rate of G",
        "It mutates and is inherited: what spreads over the grid has served well.",
        lambda one: one.of["g/lr"],
    ),
    Measure(
        "lr-d",
        "Learning rate of D",
        "It mutates and is inherited: what spreads over the grid has served well.",
        lambda one: one.of["d/lr"],
    ),
    Measure(
        "age-g",
        "Age of G",
        "Generations since each cell's G was trained: an old one has beaten all that came after it.",
        lambda one: one.age("g"),
        floor=0.0,
    ),
    Measure(
        "age-d",
        "Age of D",
        "Generations since each cell's D was trained: an old one has beaten all that came after it.",
        lambda one: one.age("d"),
        floor=0.0,
    ),
)


def heat_maps(grid: Grid, shown: Sequence[Generation]) -> list[HeatMap]:
    """Of everything that any of these generations tells; the last of them is the one with numbers."""
    measured = [_measure_map(measure, grid, shown) for measure in MEASURES]
    found = [*measured[:3], _loss_map(grid, shown), *measured[3:], _birth_map(grid, shown)]
    return [one for one in found if one is not None]


def num_past_maps(grid: Grid) -> int:
    """Generations that a map of this grid shows beside the newest; below 2: none."""
    return min(_SMALL, _SMALL_CELLS // grid.cells)


def _measure_map(measure: Measure, grid: Grid, shown: Sequence[Generation]) -> HeatMap | None:
    found = [measure.of(one) for one in shown]
    everything = _finite_values(value for values in found for value in values)
    if not everything:
        return None
    over = [_finite_values(values) if measure.own_scale else everything for values in found]
    scales = [fit_scale(told, 0.0, 1.0, measure.floor) for told in over]
    shades = [[_shade_of(value, scale) for value in values] for values, scale in zip(found, scales, strict=True)]
    texts = [format_short(value) if math.isfinite(value) else "–" for value in found[-1]]
    spans = ["–".join(_range_texts(told)) for told in over] if measure.own_scale else None
    drawn = _build_map((measure.id, measure.title, measure.note), grid, shown, shades, texts, spans)
    return replace(drawn, ramp=_range_texts(over[-1]), log=scales[-1].log)


def _loss_map(grid: Grid, shown: Sequence[Generation]) -> HeatMap | None:
    """Only of a grid that draws."""
    found = [one.of["loss"] for one in shown]
    if len({value for values in found for value in values if math.isfinite(value)} | {*range(len(grid.losses))}) < 2:
        return None
    shades = [[_tone_of(value) if math.isfinite(value) else _UNKNOWN for value in values] for values in found]
    named = GridLayout.of(grid).columns <= _NAMED
    texts = [_loss_text(value, grid.losses if named else ()) for value in found[-1]]
    legend = tuple((_tone_of(n), name if named else f"{n} {name}") for n, name in enumerate(grid.losses))
    caption = ("loss", "Loss", "Which loss each cell trained with in this generation.")
    return replace(_build_map(caption, grid, shown, shades, texts), legend=legend)


def _birth_map(grid: Grid, shown: Sequence[Generation]) -> HeatMap | None:
    found = [one.of["g/born_cell"] for one in shown]
    away = Counter(v for values in found for cell, v in enumerate(values) if math.isfinite(v) and v != cell)
    if not any(math.isfinite(value) for values in found for value in values):
        return None
    tones = {cell: _tone_of(rank) for rank, (cell, _) in enumerate(away.most_common())}

    def shade(cell: int, born: float) -> str:
        return _UNKNOWN if not math.isfinite(born) else _HOME if born == cell else tones[born]

    shades = [[shade(cell, born) for cell, born in enumerate(values)] for values in found]
    texts = [f"{born:.0f}" if math.isfinite(born) else "–" for born in found[-1]]
    told = "in colour where it was taken over from another cell." if away else "in its own cell everywhere, so far."
    caption = ("born", "Where G was born", f"The cell that each cell's G was trained in last, {told}")
    return _build_map(caption, grid, shown, shades, texts)


def _build_map(
    caption: tuple[str, str, str],
    grid: Grid,
    shown: Sequence[Generation],
    shades: Sequence[Sequence[str]],
    texts: Sequence[str],
    spans: Sequence[str] | None = None,
) -> HeatMap:
    folded, best = GridLayout.of(grid), shown[-1].best
    tiles = [Tile(cell, shade, texts[cell], cell == best) for cell, shade in enumerate(shades[-1])]
    lines = tuple(tuple(tiles[i : i + folded.columns]) for i in range(0, len(tiles), folded.columns))
    told = spans or [""] * len(shown)
    drawn = tuple(_draw(*one, folded) for one in zip(shown, shades, told, strict=True))
    return HeatMap(*caption, lines if folded.has_numbers else (), drawn[-1], drawn if len(drawn) > 1 else ())


def _draw(one: Generation, shades: Sequence[str], span: str, folded: GridLayout) -> MapDrawing:
    paths: dict[str, str] = {}
    for line in range(folded.lines):
        column, row = 0, shades[line * folded.columns : (line + 1) * folded.columns]
        for shade, alike in groupby(row):
            length = len(list(alike))
            paths[shade] = f"{paths.get(shade, '')}M{column} {line}h{length}"
            column += length
    best = None if one.best is None else divmod(one.best, folded.columns)[::-1]
    return MapDrawing(one.number, span, tuple(sorted(paths.items())), best)


def _shade_of(value: float, scale: Scale) -> str:
    return f"h{min(_SHADES - 1, int((1.0 - scale.at(value)) * _SHADES))}" if math.isfinite(value) else _UNKNOWN


def _finite_values(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _range_texts(told: Sequence[float]) -> tuple[str, ...]:
    """The lowest and the highest; empty where there is none."""
    return (format_short(min(told)), format_short(max(told))) if told else ()


def _tone_of(rank: float) -> str:
    return f"c{min(_TONES - 1, int(rank))}"


def _loss_text(value: float, names: Sequence[str]) -> str:
    if not math.isfinite(value):
        return "–"
    return names[int(value)] if value < len(names) else f"{value:.0f}"
