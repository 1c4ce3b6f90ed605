"""A grid of cells as its record tells of it, in bounded memory, whatever it says."""

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

# Bounds on what a foreign record can cost: cells, losses, members of a mixture, routines, and what is kept of the past:
# generations, and cells in all of them.
_CELLS, _LOSSES, _MEMBERS, _ROUTINES, _KEPT, _KEPT_CELLS = 4096, 16, 64, 16, 96, 65_536
_NAME = 40  # characters
QUANTITIES = (
    *("score", "g/fitness", "d/fitness", "loss", "g/lr", "d/lr"),
    *("g/born_cell", "g/born_generation", "d/born_generation"),
)


@dataclass(frozen=True)
class Grid:
    """Cell r * columns + c lies in row r, column c. neighbours: by cell, itself first; empty where nobody told.
    scored_by: a metric.
    """

    rows: int
    columns: int
    losses: tuple[str, ...] = ()
    neighbours: tuple[tuple[int, ...], ...] = ()
    scored_by: str = ""

    @property
    def cells(self) -> int:
        return self.rows * self.columns

    @classmethod
    def read(cls, told: object) -> Grid | None:
        """From the `grid` of a start line; None where it tells no shape that can be."""
        values = to_mapping(told)
        shape, losses = values.get("shape"), values.get("losses")
        rows, columns = (to_natural(n) or 0 for n in shape) if isinstance(shape, list) and len(shape) == 2 else (0, 0)
        if not 1 <= rows * columns <= _CELLS:
            return None
        names = tuple(single_line(name, _NAME) for name in losses[:_LOSSES]) if isinstance(losses, list) else ()
        near = _neighbours(values.get("neighbours"), rows * columns)
        return cls(rows, columns, names, near, single_line(values.get("scored_by"), _NAME))


@dataclass(frozen=True)
class Generation:
    """How the cells stood. of: by quantity, a number for each cell that is not a number where nobody told."""

    number: int
    of: Mapping[str, Sequence[float]]

    @property
    def best(self) -> int | None:
        """The cell of the lowest score, the first of several; None where no mixture was scored."""
        told = [(score, cell) for cell, score in enumerate(self.of["score"]) if math.isfinite(score)]
        return min(told)[1] if told else None

    def age(self, side: str) -> list[float]:
        """In generations, of each cell's g or d: 0 where it is of this one."""
        ages = (self.number - born for born in self.of[f"{side}/born_generation"])
        return [age if age >= 0 else math.nan for age in ages]


@dataclass(frozen=True)
class Ensemble:
    """counts: (cell, how often its generator is in it)."""

    counts: tuple[tuple[int, int], ...]
    distance: float


@dataclass
class Population:
    """What the lines said of it. kept: generations spaced evenly, the first among them. weights: of the newest's best
    cell, over its neighbours. wall_s, cpu_s: by routine, over the `profiled` generations that told them.
    """

    grid: Grid | None = None
    newest: Generation | None = None
    kept: list[Generation] = field(default_factory=list)
    weights: tuple[float, ...] = ()
    ensemble: Ensemble | None = None
    curves: dict[str, Series] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    profiled: int = 0
    _seen: int = 0
    _stride: int = 1  # grows with the run

    def after_start(self, told: object) -> Population:
        """After a start line that tells this: another one where the shape is, else itself."""
        grid, known = Grid.read(told), self.grid
        if grid is None or known is None or (grid.rows, grid.columns) != (known.rows, known.columns):
            return self if grid is None else Population(grid)
        self.grid = grid  # another neighbourhood, perhaps
        return self

    def take(self, step: int, kimg: float, values: Mapping[str, Any]) -> None:
        """The next line. One of the same generation as the newest (with the ensemble) takes its place."""
        number, cells = to_natural(values.get("generation")), to_mapping(values.get("cells"))
        if number is None or (self.newest is not None and number < self.newest.number):
            return
        told = {cell: to_mapping(v) for key, v in cells.items() if (cell := to_natural(key)) is not None}
        grid = self.grid = self.grid or Grid(1, min(_CELLS, 1 + max(told, default=0)))  # nobody told the shape
        again = self.newest is not None and number == self.newest.number
        if "neighbours" in values:  # it has become another one
            grid = self.grid = replace(grid, neighbours=_neighbours(values["neighbours"], grid.cells))
        self.newest = Generation(number, _columns(told, grid.cells))
        best = self.newest.best
        self.weights = _weights(told.get(-1 if best is None else best, {}).get("weights"))
        self.ensemble = _ensemble(to_mapping(values.get("ensemble")), grid.cells)
        if not again:
            self._grow(step, kimg)
            self._keep(self.newest)
            self._time(to_mapping(values.get("profile")))

    def select_generations(self, most: int) -> list[Generation]:
        """At most so many (2 or more), spaced as evenly as they are kept, the first and the newest among them."""
        if self.newest is None:
            return []
        there = [*(one for one in self.kept if one.number < self.newest.number), self.newest]
        first, last = there[0].number, there[-1].number
        wanted = (first + (last - first) * n / (most - 1) for n in range(most))
        nearest = [min(there, key=lambda one: abs(one.number - at)) for at in wanted]
        return list({one.number: one for one in nearest}.values())

    def _grow(self, step: int, kimg: float) -> None:
        assert self.newest is not None
        scores = [score for score in self.newest.of["score"] if math.isfinite(score)]
        for name, of in (("score/best", min), ("score/median", median)):
            if scores:
                self.curves.setdefault(name, Series()).add(step, kimg, of(scores))

    def _keep(self, new: Generation) -> None:
        if self._seen % self._stride == 0:
            self.kept.append(new)
        self._seen += 1
        if len(self.kept) > min(_KEPT, _KEPT_CELLS // len(new.of["score"])):
            self.kept, self._stride = self.kept[::2], self._stride * 2

    def _time(self, told: Mapping[str, Any]) -> None:
        walls, cpus = to_mapping(told.get("wall_s")), to_mapping(told.get("cpu_s"))
        names = [name for name in islice(walls, _ROUTINES) if finite_or_nan(walls[name]) >= 0]
        self.profiled += bool(names)
        for name in names:
            routine = single_line(name, _NAME)
            if routine in self.wall_s or len(self.wall_s) < _ROUTINES:
                self.wall_s[routine] = self.wall_s.get(routine, 0.0) + finite_or_nan(walls[name])
                self.cpu_s[routine] = self.cpu_s.get(routine, 0.0) + finite_or_nan(cpus.get(name))


def _columns(told: Mapping[int, Mapping[str, Any]], cells: int) -> dict[str, array[float]]:
    rows = [_cell(told.get(cell, {}), cells) for cell in range(cells)]
    return {name: array("d", column) for name, column in zip(QUANTITIES, zip(*rows, strict=True), strict=True)}


def _cell(told: Mapping[str, Any], cells: int) -> tuple[float, ...]:
    """In the order of QUANTITIES."""
    fitness, lr, born = (to_mapping(told.get(name)) for name in ("fitness", "lr", "born"))
    (g_cell, g_when), (_, d_when) = _born(born.get("g"), cells), _born(born.get("d"), cells)
    return (
        *(
            finite_or_nan(told.get("score")),
            finite_or_nan(fitness.get("g")),
            finite_or_nan(fitness.get("d")),
            _counted(told.get("loss")),
        ),
        *(finite_or_nan(lr.get("g")), finite_or_nan(lr.get("d")), g_cell, g_when, d_when),
    )


def _born(told: object, cells: int) -> tuple[float, float]:
    """In which cell and generation; not a number for a cell that does not exist."""
    if not isinstance(told, list) or len(told) != 2:
        return math.nan, math.nan
    cell, when = (_counted(value) for value in told)
    return (cell if cell < cells else math.nan), when


def _counted(value: object) -> float:
    found = to_natural(value)
    return math.nan if found is None else float(found)


def _neighbours(told: object, cells: int) -> tuple[tuple[int, ...], ...]:
    return tuple(_members(group, cells) for group in (told[:cells] if isinstance(told, list) else ()))


def _members(group: object, cells: int) -> tuple[int, ...]:
    """Empty unless all of them exist: which weight is whose would be unknown."""
    found = [to_natural(cell) for cell in group[:_MEMBERS]] if isinstance(group, list) else []
    known = tuple(cell for cell in found if cell is not None and cell < cells)
    return known if len(known) == len(found) else ()


def _weights(told: object) -> tuple[float, ...]:
    return tuple(finite_or_nan(weight) for weight in told[:_MEMBERS]) if isinstance(told, list) else ()


def _ensemble(told: Mapping[str, Any], cells: int) -> Ensemble | None:
    pairs: Iterable[tuple[int | None, int | None]]
    pairs = ((to_natural(cell), to_natural(count)) for cell, count in to_mapping(told.get("counts")).items())
    known = [(cell, count) for cell, count in pairs if cell is not None and cell < cells and count]
    return Ensemble(tuple(sorted(known)[:_MEMBERS]), finite_or_nan(told.get("distance"))) if known else None
