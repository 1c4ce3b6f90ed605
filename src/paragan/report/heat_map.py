"""Heat maps of a grid: tiles with numbers and small SVG drawings, escaped by the template."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, product

from paragan.report.grid_record import Generation, Grid
from paragan.report.scale import Scale, fit_scale, format_short

_NUM_SHADES = 9  # CSS classes h0 (low) … h8 (high)
_NUM_TONES = 8  # CSS classes c0 … c7, of which the last is for all others
_UNKNOWN = "hx"
_HOME = "home"
_RING_COLUMNS = 16  # cells of a ring per line
_MAX_NUMBERED_CELLS = 1024  # of a map with numbers
_MAX_NUMBERED_COLUMNS = 40
_MAX_NAMED_COLUMNS = 3  # of a map with names in its tiles
_MAX_SMALL_MAPS = 12
_MAX_SMALL_CELLS = 4096  # in all small maps


@dataclass(frozen=True)
class Tile:
    """Cell of a heat map. shade: CSS class. mark: whether it is the best cell."""

    cell: int
    shade: str
    text: str
    mark: bool


@dataclass(frozen=True)
class MapDrawing:
    """SVG drawing of a heat map, one unit per cell."""

    generation: int
    span: str
    paths: tuple[tuple[str, str], ...]  # (shade, SVG path)
    best: tuple[int, int] | None  # column and line of the best cell


@dataclass(frozen=True)
class HeatMap:
    """Map of one quantity over the grid.

    lines: tiles, empty for large grids. whole: the map as a drawing. past: small drawings, the
    latest last. ramp: lowest and highest value. log: whether the shades are logarithmic. legend:
    (shade, meaning).
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
    """Layout of a grid in lines and columns; a ring is wrapped into several lines."""

    lines: int
    columns: int

    @classmethod
    def of(cls, grid: Grid, ring_columns: int = _RING_COLUMNS) -> GridLayout:
        """Return the layout of a grid. ring_columns: cells of a ring per line."""
        if min(grid.rows, grid.columns) == 1:
            columns = min(ring_columns, grid.cells)
            return cls(-(-grid.cells // columns), columns)
        return cls(grid.rows, grid.columns)

    @property
    def has_numbers(self) -> bool:
        """Whether the map is small enough for numbers in its tiles."""
        is_narrow = self.columns <= _MAX_NUMBERED_COLUMNS
        return is_narrow and self.lines * self.columns <= _MAX_NUMBERED_CELLS


@dataclass(frozen=True)
class Measure:
    """Quantity of a `Generation`. scale_per_generation: separate shades per generation."""

    quantity: str
    title: str
    note: str
    scale_per_generation: bool = False
    floor: float | None = None

    def of_player(self, player: str) -> Measure:
        """Return the measure of G or D."""
        other = "D" if player == "G" else "G"
        quantity = f"{player.lower()}/{self.quantity}"
        note = self.note.format(player=player, other=other)
        return replace(self, quantity=quantity, title=f"{self.title} of {player}", note=note)


_OF_PLAYERS = (
    Measure(
        "fitness",
        "Fitness",
        "Loss of each cell's {player} against the neighbouring {other}s. Lower is better.",
        scale_per_generation=True,
    ),
    Measure("lr", "Learning rate", "Learning rates mutate and are inherited: successful ones spread over the grid."),
    Measure(
        "age",
        "Age",
        "Generations since each cell's {player} was trained. A high age means that it beat all later candidates.",
        floor=0.0,
    ),
)
MEASURES = (
    Measure(
        "score",
        "Mixture score",
        "Distance between the images of each cell's mixture and real images. Lower is better.",
        scale_per_generation=True,
    ),
    *(measure.of_player(player) for measure, player in product(_OF_PLAYERS, "GD")),
)


def heat_maps(grid: Grid, generations: Sequence[Generation]) -> list[HeatMap]:
    """Return a map of every quantity that any generation reports; the last one has numbers."""
    measured = [_measure_map(measure, grid, generations) for measure in MEASURES]
    losses = _loss_map(grid, generations)
    all_maps = [*measured[:3], losses, *measured[3:], _birth_map(grid, generations)]
    return [heat_map for heat_map in all_maps if heat_map is not None]


def num_past_maps(grid: Grid) -> int:
    """Return the number of generations in the small maps of a grid; below 2: no small maps."""
    return min(_MAX_SMALL_MAPS, _MAX_SMALL_CELLS // grid.cells)


def _measure_map(measure: Measure, grid: Grid, generations: Sequence[Generation]) -> HeatMap | None:
    by_generation = [generation.of[measure.quantity] for generation in generations]
    everything = _finite_values(chain.from_iterable(by_generation))
    if not everything:
        return None
    ranges = [everything] * len(by_generation)
    if measure.scale_per_generation:
        ranges = [_finite_values(values) for values in by_generation]
    scales = [fit_scale(values, 0.0, 1.0, measure.floor) for values in ranges]
    scaled = zip(by_generation, scales, strict=True)
    shades = [[_shade_of(value, scale) for value in values] for values, scale in scaled]
    spans = ["–".join(_range_texts(r)) for r in ranges] if measure.scale_per_generation else None
    caption = (measure.quantity, measure.title, measure.note)
    drawn = _build_map(caption, grid, generations, shades, _texts(by_generation[-1]), spans)
    return replace(drawn, ramp=_range_texts(ranges[-1]), log=scales[-1].log)


def _loss_map(grid: Grid, generations: Sequence[Generation]) -> HeatMap | None:
    """Return the map of losses; None if all cells have the same loss."""
    by_generation = [generation.of["loss"] for generation in generations]
    used = set(_finite_values(chain.from_iterable(by_generation)))
    if len(used | {*range(len(grid.losses))}) < 2:
        return None
    shades = [[_tone_of(value) for value in values] for values in by_generation]
    named = GridLayout.of(grid).columns <= _MAX_NAMED_COLUMNS
    names: dict[float, str] = dict(enumerate(grid.losses)) if named else {}
    latest = by_generation[-1]
    texts = [names.get(value, text) for value, text in zip(latest, _texts(latest), strict=True)]
    labels = (name if named else f"{n} {name}" for n, name in enumerate(grid.losses))
    legend = tuple((_tone_of(n), label) for n, label in enumerate(labels))
    caption = ("loss", "Loss", "Loss that each cell trained with in this generation.")
    return replace(_build_map(caption, grid, generations, shades, texts), legend=legend)


def _birth_map(grid: Grid, generations: Sequence[Generation]) -> HeatMap | None:
    by_generation = [generation.of["g/born_cell"] for generation in generations]
    if not _finite_values(chain.from_iterable(by_generation)):
        return None
    sources: Counter[float] = Counter()
    for values in by_generation:
        sources.update(born for cell, born in enumerate(values) if math.isfinite(born) and born != cell)
    tones = {cell: _tone_of(rank) for rank, (cell, _) in enumerate(sources.most_common())}

    def shade(cell: int, born: float) -> str:
        return _HOME if born == cell else tones.get(born, _UNKNOWN)

    shades = [[shade(cell, born) for cell, born in enumerate(values)] for values in by_generation]
    remark = "Coloured cells adopted the G of another cell." if sources else "No cell has adopted the G of another one."
    caption = ("born", "Origin of G", f"Cell in which each cell's G was last trained. {remark}")
    return _build_map(caption, grid, generations, shades, _texts(by_generation[-1]))


def _build_map(
    caption: tuple[str, str, str],
    grid: Grid,
    generations: Sequence[Generation],
    shades: Sequence[Sequence[str]],
    texts: Sequence[str],
    spans: Sequence[str] | None = None,
) -> HeatMap:
    layout = GridLayout.of(grid)
    best = generations[-1].best
    tiles = [Tile(cell, shade, texts[cell], cell == best) for cell, shade in enumerate(shades[-1])]
    starts = range(0, len(tiles), layout.columns)
    lines = tuple(tuple(tiles[i : i + layout.columns]) for i in starts)
    rows = zip(generations, shades, spans or [""] * len(generations), strict=True)
    drawn = tuple(_draw(generation, shade, span, layout) for generation, shade, span in rows)
    numbered = lines if layout.has_numbers else ()
    return HeatMap(*caption, numbered, drawn[-1], drawn if len(drawn) > 1 else ())


def _draw(generation: Generation, shades: Sequence[str], span: str, layout: GridLayout) -> MapDrawing:
    paths: dict[str, str] = {}
    for line in range(layout.lines):
        column = 0
        row = shades[line * layout.columns : (line + 1) * layout.columns]
        for shade, group in groupby(row):
            length = len(list(group))
            paths[shade] = f"{paths.get(shade, '')}M{column} {line}h{length}"
            column += length
    best = None if generation.best is None else divmod(generation.best, layout.columns)[::-1]
    return MapDrawing(generation.number, span, tuple(sorted(paths.items())), best)


def _shade_of(value: float, scale: Scale) -> str:
    if not math.isfinite(value):
        return _UNKNOWN
    return f"h{min(_NUM_SHADES - 1, int((1.0 - scale.at(value)) * _NUM_SHADES))}"


def _finite_values(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _range_texts(values: Sequence[float]) -> tuple[str, ...]:
    """Return the lowest and the highest value as texts; empty without values."""
    return (format_short(min(values)), format_short(max(values))) if values else ()


def _texts(values: Sequence[float]) -> list[str]:
    return [format_short(value) if math.isfinite(value) else "–" for value in values]


def _tone_of(rank: float) -> str:
    return f"c{min(_NUM_TONES - 1, int(rank))}" if math.isfinite(rank) else _UNKNOWN
