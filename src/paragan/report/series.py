"""Time series in bounded memory for any length: pairs of buckets merge, extremes remain."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

CAPACITY = 200


@dataclass(slots=True)
class Bucket:
    """Range (finite values) and mean of consecutive values. bad: number of non-finite values."""

    step: int
    kimg: float
    seconds: float = 0.0  # of training
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    finite: int = 0
    bad: int = 0

    @property
    def mean(self) -> float | None:
        """Mean of the finite values; None without any."""
        return self.total / self.finite if self.finite else None

    def add(self, step: int, kimg: float, value: float, seconds: float) -> None:
        """Add a later value."""
        if math.isfinite(value):
            self.merge(Bucket(step, kimg, seconds, value, value, value, finite=1))
        else:
            self.merge(Bucket(step, kimg, seconds, bad=1))

    def merge(self, later: Bucket) -> None:
        """Merge a later bucket into this one and take its position."""
        self.step = later.step
        self.kimg = later.kimg
        self.seconds = later.seconds
        self.low = min(self.low, later.low)
        self.high = max(self.high, later.high)
        self.total += later.total
        self.finite += later.finite
        self.bad += later.bad


@dataclass(slots=True)
class Series:
    """Series of at most CAPACITY buckets of `width` values. last: newest value, finite or not."""

    buckets: list[Bucket] = field(default_factory=list)
    width: int = 1
    last: float = math.nan
    bad: int = 0
    _filled: int = 0

    def add(self, step: int, kimg: float, value: float, seconds: float = 0.0) -> None:
        """Add the next value. seconds: of training."""
        self.last = value
        self.bad += not math.isfinite(value)
        if self._filled == self.width or not self.buckets:
            self.buckets.append(Bucket(step, kimg, seconds))
            self._filled = 0
        self.buckets[-1].add(step, kimg, value, seconds)
        self._filled += 1
        if len(self.buckets) > CAPACITY:
            self._halve()

    def means(self) -> list[float]:
        """Return the means of the buckets with a finite value."""
        return [bucket.mean for bucket in self.buckets if bucket.mean is not None]

    def _halve(self) -> None:
        """Merge buckets in pairs; the latest has no partner, since CAPACITY is even."""
        for earlier, later in zip(self.buckets[:-1:2], self.buckets[1::2], strict=True):
            earlier.merge(later)
        self.buckets = self.buckets[::2]
        self.width *= 2
