"""A line of a chart in bounded memory, however long the run: buckets that merge pairwise, so that spikes stay."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

CAPACITY = 200


@dataclass(slots=True)
class Bucket:
    """Neighbouring values as one. low and high are finite; bad counts values that were not."""

    step: int
    kimg: float
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    finite: int = 0
    bad: int = 0

    @property
    def mean(self) -> float | None:
        return self.total / self.finite if self.finite else None

    def add(self, step: int, kimg: float, value: float) -> None:
        """One later value."""
        self.step, self.kimg = step, kimg
        if math.isfinite(value):
            self.low, self.high = min(self.low, value), max(self.high, value)
            self.total, self.finite = self.total + value, self.finite + 1
        else:
            self.bad += 1

    def take(self, later: Bucket) -> None:
        """Become both; the position is that of the later one."""
        self.step, self.kimg = later.step, later.kimg
        self.low, self.high = min(self.low, later.low), max(self.high, later.high)
        self.total, self.finite, self.bad = self.total + later.total, self.finite + later.finite, self.bad + later.bad


@dataclass(slots=True)
class Series:
    """At most CAPACITY buckets of `width` values each. last: the newest value, finite or not."""

    buckets: list[Bucket] = field(default_factory=list)
    width: int = 1
    last: float = math.nan
    bad: int = 0
    _filled: int = 0

    def add(self, step: int, kimg: float, value: float) -> None:
        """The next value in time."""
        self.last, self.bad = value, self.bad + (not math.isfinite(value))
        if self._filled == self.width or not self.buckets:
            self.buckets.append(Bucket(step, kimg))
            self._filled = 0
        self.buckets[-1].add(step, kimg, value)
        self._filled += 1
        if len(self.buckets) > CAPACITY:
            self._halve()

    def means(self) -> list[float]:
        """Of the buckets that hold a finite value."""
        return [bucket.mean for bucket in self.buckets if bucket.mean is not None]

    def _halve(self) -> None:
        """CAPACITY is even, so the newest bucket stands alone afterwards and is filled up."""
        for earlier, later in zip(self.buckets[:-1:2], self.buckets[1::2], strict=True):
            earlier.take(later)
        self.buckets = self.buckets[::2]
        self.width *= 2
