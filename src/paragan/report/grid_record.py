"""Record of a grid of cells, parsed from untrusted lines in bounded memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from paragan.report.record_values import (
    finite_or_nan,
    first_items,
    first_pairs,
    natural_or_nan,
    single_line,
    to_mapping,
    to_natural,
)
from paragan.report.series import Series

# Limits on the cost of an untrusted record.
_MAX_CELLS = 4096
_MAX_LOSSES = 16
_MAX_MEMBERS = 64  # of a mixture
_MAX_ROUTINES = 16
_MAX_PAST = 96  # stored generations
_MAX_PAST_CELLS = 65_536  # cells of all stored generations
_MAX_NAME = 40  # characters


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
        shape = [to_natural(n) or 0 for n in first_items(values.get("shape"))]
        if len(shape) != 2 or not 1 <= math.prod(shape) <= _MAX_CELLS:
            return None
        rows, columns = shape
        losses = first_items(values.get("losses"), _MAX_LOSSES)
        names = tuple(single_line(name, _MAX_NAME) for name in losses)
        near = _neighbours(values.get("neighbours"), rows * columns)
        return cls(rows, columns, names, near, single_line(values.get("scored_by"), _MAX_NAME))


@dataclass(frozen=True)
class Generation:
    """State of all cells after a generation.

    of: a number per cell (NaN: unknown) by quantity: score, loss, and of each side fitness, lr,
    born_cell, and age, the generations since it was trained; such as "g/age".
    """

    number: int
    of: Mapping[str, Sequence[float]]

    @property
    def best(self) -> int | None:
        """Cell with the lowest score, the first of equal ones; None if no mixture was scored."""
        scores = enumerate(self.of["score"])
        scored = [(score, cell) for cell, score in scores if math.isfinite(score)]
        return min(scored)[1] if scored else None

    @classmethod
    def read(cls, number: int, lines: Sequence[Mapping[str, Any]]) -> Generation:
        """Parse the `cells` of a generation line, one mapping per cell."""
        of = {"score": [finite_or_nan(line.get("score")) for line in lines]}
        of["loss"] = [natural_or_nan(line.get("loss")) for line in lines]
        for side in ("g", "d"):
            for name in ("fitness", "lr"):
                values = [to_mapping(line.get(name)).get(side) for line in lines]
                of[f"{side}/{name}"] = [finite_or_nan(value) for value in values]
            births = [_birth(line, side) for line in lines]
            known = [cell if cell < len(lines) else math.nan for cell, _ in births]
            of[f"{side}/born_cell"] = known
            ages = [number - born for _, born in births]
            of[f"{side}/age"] = [age if age >= 0 else math.nan for age in ages]
        return cls(number, {name: array("d", values) for name, values in of.items()})


@dataclass(frozen=True)
class EnsembleRecord:
    """Ensemble selected after training. counts: (cell, times that its generator was selected)."""

    counts: tuple[tuple[int, int], ...]
    distance: float


@dataclass
class GridHistory:
    """Content of the generation lines.

    past: evenly spaced generations, including the first. weights: mixture weights of the latest
    best cell over its neighbours. wall_s, cpu_s: by routine, summed over the `profiled` generations
    that report them.
    """

    grid: Grid | None = None
    latest: Generation | None = None
    past: list[Generation] = field(default_factory=list)
    weights: tuple[float, ...] = ()
    ensemble: EnsembleRecord | None = None
    curves: dict[str, Series] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    profiled: int = 0
    _num_generations: int = 0
    _stride: int = 1  # grows with the run

    def after_start(self, line: object) -> GridHistory:
        """Return this history, or a new one if a start line's `grid` has another shape."""
        grid = Grid.read(line)
        known = self.grid
        if grid is None:
            return self
        if known is None or (grid.rows, grid.columns) != (known.rows, known.columns):
            return GridHistory(grid)
        self.grid = grid  # the neighbourhood may have changed
        return self

    def add(self, step: int, kimg: float, values: Mapping[str, Any], seconds: float = 0.0) -> None:
        """Add the next line; it replaces the latest generation if it has the same number."""
        number = to_natural(values.get("generation"))
        cells = to_mapping(values.get("cells"))
        grid = self.grid
        last = -1 if self.latest is None else self.latest.number
        if grid is None or number is None or number < last:
            return
        lines = [to_mapping(cells.get(str(cell))) for cell in range(grid.cells)]
        if "neighbours" in values:  # it has changed
            self.grid = replace(grid, neighbours=_neighbours(values["neighbours"], grid.cells))
        self.latest = Generation.read(number, lines)
        best = self.latest.best
        weights = None if best is None else lines[best].get("weights")
        self.weights = tuple(finite_or_nan(weight) for weight in first_items(weights, _MAX_MEMBERS))
        self.ensemble = _ensemble(to_mapping(values.get("ensemble")), grid.cells)
        if number > last:
            self._add_scores(step, kimg, seconds)
            self._store(self.latest)
            self._add_profile(to_mapping(values.get("profile")))

    def select_generations(self, count: int) -> list[Generation]:
        """Return at most `count` evenly spaced generations with the first and the latest.

        Below 2, only the latest.
        """
        if self.latest is None:
            return []
        if count < 2:
            return [self.latest]
        stored = [*(past for past in self.past if past.number < self.latest.number), self.latest]
        first = stored[0].number
        last = stored[-1].number
        targets = (first + (last - first) * n / (count - 1) for n in range(count))
        nearest = [min(stored, key=lambda past: abs(past.number - target)) for target in targets]
        return list({past.number: past for past in nearest}.values())

    def _add_scores(self, step: int, kimg: float, seconds: float) -> None:
        assert self.latest is not None
        if scores := [score for score in self.latest.of["score"] if math.isfinite(score)]:
            self.curves.setdefault("score/best", Series()).add(step, kimg, min(scores), seconds)
            self.curves.setdefault("score/median", Series()).add(step, kimg, median(scores), seconds)

    def _store(self, new: Generation) -> None:
        if self._num_generations % self._stride == 0:
            self.past.append(new)
        self._num_generations += 1
        if len(self.past) > min(_MAX_PAST, _MAX_PAST_CELLS // len(new.of["score"])):
            self.past = self.past[::2]
            self._stride *= 2

    def _add_profile(self, profile: Mapping[str, Any]) -> None:
        cpus = to_mapping(profile.get("cpu_s"))
        walls = first_pairs(profile.get("wall_s"), _MAX_ROUTINES)
        measured = [(name, finite_or_nan(s)) for name, s in walls if finite_or_nan(s) >= 0]
        self.profiled += bool(measured)
        for name, wall_s in measured:
            routine = single_line(name, _MAX_NAME)
            if routine in self.wall_s or len(self.wall_s) < _MAX_ROUTINES:
                self.wall_s[routine] = self.wall_s.get(routine, 0.0) + wall_s
                self.cpu_s[routine] = self.cpu_s.get(routine, 0.0) + finite_or_nan(cpus.get(name))


def _birth(line: Mapping[str, Any], side: str) -> tuple[float, float]:
    """Return cell and generation in which a cell's g or d was trained; NaN if unknown."""
    pair = first_items(to_mapping(line.get("born")).get(side))
    if len(pair) != 2:
        return math.nan, math.nan
    return natural_or_nan(pair[0]), natural_or_nan(pair[1])


def _neighbours(groups: object, cells: int) -> tuple[tuple[int, ...], ...]:
    return tuple(_members(group, cells) for group in first_items(groups, cells))


def _members(group: object, cells: int) -> tuple[int, ...]:
    """Return the cells of a group; empty unless all exist, since weights could not be assigned."""
    members = [natural_or_nan(cell) for cell in first_items(group, _MAX_MEMBERS)]
    return tuple(map(int, members)) if all(cell < cells for cell in members) else ()


def _ensemble(line: Mapping[str, Any], cells: int) -> EnsembleRecord | None:
    counts = to_mapping(line.get("counts")).items()
    pairs = ((to_natural(cell), to_natural(count)) for cell, count in counts)
    known = [(cell, count) for cell, count in pairs if cell is not None and cell < cells and count]
    if not known:
        return None
    return EnsembleRecord(tuple(sorted(known)[:_MAX_MEMBERS]), finite_or_nan(line.get("distance")))
