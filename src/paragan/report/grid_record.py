"""Record of a grid of cells, parsed from untrusted lines in bounded memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median
from typing import Any

from paragan.report.record_values import finite_or_nan, single_line, to_mapping, to_natural
from paragan.report.series import Series

# Limits on the cost of an untrusted record.
_MAX_CELLS = 4096
_MAX_LOSSES = 16
_MAX_MEMBERS = 64  # of a mixture
_MAX_ROUTINES = 16
_MAX_PAST = 96  # stored generations
_MAX_PAST_CELLS = 65_536  # cells of all stored generations
_MAX_NAME = 40  # characters
QUANTITIES = (
    *("score", "g/fitness", "d/fitness", "loss", "g/lr", "d/lr"),
    *("g/born_cell", "g/born_generation", "d/born_generation"),
)


@dataclass(frozen=True)
class Grid:
    """Shape of a grid: cell r * columns + c is at row r, column c.

    neighbours: neighbourhood of each cell, beginning with the cell; empty if unknown. scored_by:
    name of the metric.
    """

    rows: int
    columns: int
    losses: tuple[str, ...] = ()
    neighbours: tuple[tuple[int, ...], ...] = ()
    scored_by: str = ""

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.rows * self.columns

    @classmethod
    def read(cls, line: object) -> Grid | None:
        """Parse the `grid` of a start line; None without a valid shape."""
        values = to_mapping(line)
        shape = values.get("shape")
        losses = values.get("losses")
        sides = shape if isinstance(shape, list) and len(shape) == 2 else (0, 0)
        rows, columns = (to_natural(n) or 0 for n in sides)
        if not 1 <= rows * columns <= _MAX_CELLS:
            return None
        first_losses = losses[:_MAX_LOSSES] if isinstance(losses, list) else ()
        names = tuple(single_line(name, _MAX_NAME) for name in first_losses)
        near = _neighbours(values.get("neighbours"), rows * columns)
        return cls(rows, columns, names, near, single_line(values.get("scored_by"), _MAX_NAME))


@dataclass(frozen=True)
class Generation:
    """State of all cells after a generation. of: a number per cell by quantity; NaN: unknown."""

    number: int
    of: Mapping[str, Sequence[float]]

    @property
    def best(self) -> int | None:
        """Cell with the lowest score, the first of equal ones; None if no mixture was scored."""
        scores = enumerate(self.of["score"])
        scored = [(score, cell) for cell, score in scores if math.isfinite(score)]
        return min(scored)[1] if scored else None

    def age(self, side: str) -> list[float]:
        """Return the generations since each cell's g or d was trained: 0 if in this one."""
        ages = (self.number - born for born in self.of[f"{side}/born_generation"])
        return [age if age >= 0 else math.nan for age in ages]


@dataclass(frozen=True)
class Ensemble:
    """Ensemble selected after training. counts: (cell, times that its generator was selected)."""

    counts: tuple[tuple[int, int], ...]
    distance: float


@dataclass
class Population:
    """Content of the generation lines.

    past: evenly spaced generations, including the first. weights: mixture weights of the latest
    best cell over its neighbours. wall_s, cpu_s: by routine, summed over the `profiled` generations
    that report them.
    """

    grid: Grid | None = None
    latest: Generation | None = None
    past: list[Generation] = field(default_factory=list)
    weights: tuple[float, ...] = ()
    ensemble: Ensemble | None = None
    curves: dict[str, Series] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    profiled: int = 0
    _num_generations: int = 0
    _stride: int = 1  # grows with the run

    def after_start(self, line: object) -> Population:
        """Return this population, or a new one if a start line's `grid` has another shape."""
        grid = Grid.read(line)
        known = self.grid
        if grid is None:
            return self
        if known is None or (grid.rows, grid.columns) != (known.rows, known.columns):
            return Population(grid)
        self.grid = grid  # the neighbourhood may have changed
        return self

    def take(self, step: int, kimg: float, values: Mapping[str, Any]) -> None:
        """Add the next line; it replaces the latest generation if it has the same number."""
        number = to_natural(values.get("generation"))
        cells = to_mapping(values.get("cells"))
        if number is None or (self.latest is not None and number < self.latest.number):
            return
        numbered = ((to_natural(key), to_mapping(value)) for key, value in cells.items())
        by_cell = {cell: value for cell, value in numbered if cell is not None}
        # one row if the shape is unknown
        grid = self.grid = self.grid or Grid(1, min(_MAX_CELLS, 1 + max(by_cell, default=0)))
        is_repeated = self.latest is not None and number == self.latest.number
        if "neighbours" in values:  # it has changed
            neighbours = _neighbours(values["neighbours"], grid.cells)
            grid = self.grid = replace(grid, neighbours=neighbours)
        self.latest = Generation(number, _columns(by_cell, grid.cells))
        best = self.latest.best
        self.weights = _weights(by_cell.get(-1 if best is None else best, {}).get("weights"))
        self.ensemble = _ensemble(to_mapping(values.get("ensemble")), grid.cells)
        if not is_repeated:
            self._grow(step, kimg)
            self._store(self.latest)
            self._time(to_mapping(values.get("profile")))

    def select_generations(self, count: int) -> list[Generation]:
        """Return at most `count` >= 2 evenly spaced generations, with the first and the latest."""
        if self.latest is None:
            return []
        stored = [*(past for past in self.past if past.number < self.latest.number), self.latest]
        first = stored[0].number
        last = stored[-1].number
        targets = (first + (last - first) * n / (count - 1) for n in range(count))
        nearest = [min(stored, key=lambda past: abs(past.number - target)) for target in targets]
        return list({past.number: past for past in nearest}.values())

    def _grow(self, step: int, kimg: float) -> None:
        assert self.latest is not None
        scores = [score for score in self.latest.of["score"] if math.isfinite(score)]
        for name, of in (("score/best", min), ("score/median", median)):
            if scores:
                self.curves.setdefault(name, Series()).add(step, kimg, of(scores))

    def _store(self, new: Generation) -> None:
        if self._num_generations % self._stride == 0:
            self.past.append(new)
        self._num_generations += 1
        if len(self.past) > min(_MAX_PAST, _MAX_PAST_CELLS // len(new.of["score"])):
            self.past = self.past[::2]
            self._stride = self._stride * 2

    def _time(self, profile: Mapping[str, Any]) -> None:
        walls = to_mapping(profile.get("wall_s"))
        cpus = to_mapping(profile.get("cpu_s"))
        names = [name for name in islice(walls, _MAX_ROUTINES) if finite_or_nan(walls[name]) >= 0]
        self.profiled += bool(names)
        for name in names:
            routine = single_line(name, _MAX_NAME)
            if routine in self.wall_s or len(self.wall_s) < _MAX_ROUTINES:
                self.wall_s[routine] = self.wall_s.get(routine, 0.0) + finite_or_nan(walls[name])
                self.cpu_s[routine] = self.cpu_s.get(routine, 0.0) + finite_or_nan(cpus.get(name))


def _columns(by_cell: Mapping[int, Mapping[str, Any]], cells: int) -> dict[str, array[float]]:
    rows = [_cell(by_cell.get(cell, {}), cells) for cell in range(cells)]
    columns = zip(QUANTITIES, zip(*rows, strict=True), strict=True)
    return {name: array("d", column) for name, column in columns}


def _cell(line: Mapping[str, Any], cells: int) -> tuple[float, ...]:
    """Return the values of one cell in the order of QUANTITIES."""
    fitness, lr, born = (to_mapping(line.get(name)) for name in ("fitness", "lr", "born"))
    g_cell, g_generation = _birth(born.get("g"), cells)
    _, d_generation = _birth(born.get("d"), cells)
    scores = [line.get("score"), fitness.get("g"), fitness.get("d")]
    rates = [finite_or_nan(lr.get(side)) for side in ("g", "d")]
    births = (g_cell, g_generation, d_generation)
    loss = _natural_or_nan(line.get("loss"))
    return (*(finite_or_nan(score) for score in scores), loss, *rates, *births)


def _birth(pair: object, cells: int) -> tuple[float, float]:
    """Return cell and generation of birth; NaN for an invalid cell."""
    if not isinstance(pair, list) or len(pair) != 2:
        return math.nan, math.nan
    cell, generation = (_natural_or_nan(value) for value in pair)
    return (cell if cell < cells else math.nan), generation


def _natural_or_nan(value: object) -> float:
    number = to_natural(value)
    return math.nan if number is None else float(number)


def _neighbours(groups: object, cells: int) -> tuple[tuple[int, ...], ...]:
    first_groups = groups[:cells] if isinstance(groups, list) else []
    return tuple(_members(group, cells) for group in first_groups)


def _members(group: object, cells: int) -> tuple[int, ...]:
    """Return the cells of a group; empty unless all exist, since weights could not be assigned."""
    members = [to_natural(cell) for cell in group[:_MAX_MEMBERS]] if isinstance(group, list) else []
    known = tuple(cell for cell in members if cell is not None and cell < cells)
    return known if len(known) == len(members) else ()


def _weights(values: object) -> tuple[float, ...]:
    weights = values[:_MAX_MEMBERS] if isinstance(values, list) else []
    return tuple(finite_or_nan(weight) for weight in weights)


def _ensemble(line: Mapping[str, Any], cells: int) -> Ensemble | None:
    pairs: Iterable[tuple[int | None, int | None]]
    counts = to_mapping(line.get("counts")).items()
    pairs = ((to_natural(cell), to_natural(count)) for cell, count in counts)
    known = [(cell, count) for cell, count in pairs if cell is not None and cell < cells and count]
    if not known:
        return None
    return Ensemble(tuple(sorted(known)[:_MAX_MEMBERS]), finite_or_nan(line.get("distance")))
