"""Time series in bounded memory for any length: pairs of points merge, extremes remain."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

CAPACITY = 200


@dataclass(slots=True, kw_only=True)
class Point:
    """Consecutive values of a run, at the position of the newest. seconds: of training.

    low, high: range of the finite values, or the interval of a single one, which the record has. bad: number of values
    that are not finite.
    """

    step: int
    kimg: float
    seconds: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    finite: int = 0
    bad: int = 0

    @property
    def value(self) -> float | None:
        """Mean of the finite values; None without any, or if it overflows."""
        return self.total / self.finite if self.finite and math.isfinite(self.total) else None

    @classmethod
    def of(cls, step: int, kimg: float, value: float, seconds: float = 0.0) -> Point:
        """Return the point of a single value."""
        if not math.isfinite(value):
            return cls(step=step, kimg=kimg, seconds=seconds, bad=1)
        return cls(step=step, kimg=kimg, seconds=seconds, low=value, high=value, total=value, finite=1)

    def merge(self, later: Point) -> None:
        """Merge a later point into this one and take its position."""
        self.step = later.step
        self.kimg = later.kimg
        self.seconds = later.seconds
        self.low = min(self.low, later.low)
        self.high = max(self.high, later.high)
        self.total += later.total
        self.finite += later.finite
        self.bad += later.bad


@dataclass(slots=True, kw_only=True)
class Series:
    """Series of at most CAPACITY points of `width` values. last: newest value, finite or not."""

    points: list[Point] = field(default_factory=list)
    width: int = 1
    last: float = math.nan
    bad: int = 0
    _filled: int = 0

    def add(self, step: int, kimg: float, value: float, seconds: float = 0.0) -> None:
        """Add the next value. seconds: of training."""
        self.last = value
        point = Point.of(step, kimg, value, seconds)
        self.bad += point.bad
        if self._filled == self.width or not self.points:
            self.points.append(point)
            self._filled = 0
        else:
            self.points[-1].merge(point)
        self._filled += 1
        if len(self.points) > CAPACITY:
            self._halve()

    def _halve(self) -> None:
        """Merge points in pairs; the latest has no partner, since CAPACITY is even."""
        for earlier, later in zip(self.points[:-1:2], self.points[1::2], strict=True):
            earlier.merge(later)
        self.points = self.points[::2]
        self.width *= 2
