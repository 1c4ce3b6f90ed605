"""Record of a grid of cells, parsed from untrusted lines in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from paragan.report.record_values import finite_or_nan, first_items, first_pairs, single_line, to_mapping, to_natural
from paragan.report.scale import format_number
from paragan.report.series import Series

# Limits on the cost of an untrusted record.
_MAX_CELLS = 4096
_MAX_LOSSES = 16
_MAX_MEMBERS = 64  # of a mixture
_MAX_ROUTINES = 16
_MAX_NAME = 40  # characters


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Shape of a grid: cell r * columns + c is at row r, column c.

    neighbours: neighbourhood of each cell, beginning with the cell; empty if unknown. scored_by: name of the metric.
    """

    rows: int
    columns: int
    losses: tuple[str, ...] = ()
    neighbours: tuple[tuple[int, ...], ...] = ()
    scored_by: str = ""

    @property
    def cells(self) -> int:
        return self.rows * self.columns

    @property
    def shape_text(self) -> str:
        """Rows and columns, for a title."""
        return f"{self.rows:,} × {self.columns:,} cells"

    @classmethod
    def read(cls, line: object) -> Grid | None:
        """Parse the `grid` of a start line; None without a valid shape."""
        values = to_mapping(line)
        shape = [to_natural(n) or 0 for n in first_items(values.get("shape"))]
        cells = math.prod(shape)
        if len(shape) != 2 or not 1 <= cells <= _MAX_CELLS:
            return None
        return cls(
            rows=shape[0],
            columns=shape[1],
            losses=tuple(single_line(name, _MAX_NAME) for name in first_items(values.get("losses"), _MAX_LOSSES)),
            neighbours=tuple(_members(group, cells) for group in first_items(values.get("neighbours"), cells)),
            scored_by=single_line(values.get("scored_by"), _MAX_NAME),
        )

    def lettered_losses(self) -> list[tuple[str, str]]:
        """Return a letter or digit with each loss, if possible initials; empty for fewer than two losses."""
        initials = "".join(name[:1] for name in self.losses)
        if len(self.losses) < 2:
            return []
        is_distinct = len(set(initials)) == len(self.losses) and initials.isalnum()
        return list(zip(initials if is_distinct else "0123456789abcdef", self.losses, strict=False))


@dataclass(frozen=True)
class Generation:
    """Cells after a generation: score (NaN: unknown) and number of the loss (None: unknown) of each."""

    number: int
    scores: Sequence[float]
    losses: Sequence[int | None]

    @property
    def best(self) -> int | None:
        """Cell with the lowest score, the first of equal ones; None if no mixture was scored."""
        scored = [(score, cell) for cell, score in enumerate(self.scores) if math.isfinite(score)]
        return min(scored)[1] if scored else None

    @property
    def best_text(self) -> str:
        """The best cell and its score in a few words; empty if no cell was scored."""
        return "" if self.best is None else f"best cell {self.best}: {format_number(self.scores[self.best])}"


@dataclass(frozen=True)
class EnsembleRecord:
    """Ensemble selected after training. counts: (cell, times that its generator was selected)."""

    counts: tuple[tuple[int, int], ...]
    distance: float


@dataclass(kw_only=True)
class GridHistory:
    """Content of the generation lines.

    weights: mixture weights of the latest best cell over its neighbours. wall_s, cpu_s: by routine,
    summed over the `profiled` generations that report them.
    """

    grid: Grid | None = None
    latest: Generation | None = None
    weights: tuple[float, ...] = ()
    ensemble: EnsembleRecord | None = None
    curves: dict[str, Series] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    profiled: int = 0

    def after_start(self, line: object) -> GridHistory:
        """Return this history, or a new one if a start line's `grid` has another shape."""
        grid = Grid.read(line)
        known = self.grid
        if grid is None:
            return self
        if known is None or (grid.rows, grid.columns) != (known.rows, known.columns):
            return GridHistory(grid=grid)
        self.grid = grid  # a resume may change the neighbourhood
        return self

    def add(self, step: int, kimg: float, values: Mapping[str, Any], seconds: float = 0.0) -> None:
        """Add the next line; one of the same number replaces the latest generation, an earlier one is left out."""
        number = to_natural(values.get("generation"))
        cells = to_mapping(values.get("cells"))
        grid = self.grid
        last = -1 if self.latest is None else self.latest.number
        if grid is None or number is None or number < last:
            return
        lines = [to_mapping(cells.get(str(cell))) for cell in range(grid.cells)]
        scores = [finite_or_nan(line.get("score")) for line in lines]
        self.latest = Generation(number, scores, [to_natural(line.get("loss")) for line in lines])
        best = self.latest.best
        weights = None if best is None else lines[best].get("weights")
        self.weights = tuple(finite_or_nan(weight) for weight in first_items(weights, _MAX_MEMBERS))
        self.ensemble = _ensemble(to_mapping(values.get("ensemble")), grid.cells)
        if number > last:
            known = [score for score in scores if math.isfinite(score)]
            if known:
                self.curves.setdefault("score/best", Series()).add(step, kimg, min(known), seconds)
                self.curves.setdefault("score/median", Series()).add(step, kimg, median(known), seconds)
            self._add_profile(to_mapping(values.get("profile")))

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


def _members(group: object, cells: int) -> tuple[int, ...]:
    """Return the cells of a group; empty unless all exist, since weights could not be assigned."""
    members = [to_natural(cell) for cell in first_items(group, _MAX_MEMBERS)]
    known = [cell for cell in members if cell is not None and cell < cells]
    return tuple(known) if len(known) == len(members) else ()


def _ensemble(line: Mapping[str, Any], cells: int) -> EnsembleRecord | None:
    counts = to_mapping(line.get("counts")).items()
    pairs = ((to_natural(cell), to_natural(count)) for cell, count in counts)
    known = [(cell, count) for cell, count in pairs if cell is not None and cell < cells and count]
    if not known:
        return None
    return EnsembleRecord(tuple(sorted(known)[:_MAX_MEMBERS]), finite_or_nan(line.get("distance")))
