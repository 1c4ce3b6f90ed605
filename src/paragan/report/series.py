"""Time series in bounded memory for any length: pairs of buckets merge, extremes remain."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

CAPACITY = 200


class Point(NamedTuple):
    """Value at a position of a run, None if it is not finite. seconds: of training.

    low, high: range of the values that it stands for, or its interval. bad: whether any of them is
    not finite.
    """

    step: int
    kimg: float
    seconds: float
    value: float | None
    low: float = math.nan
    high: float = math.nan
    bad: bool = False


@dataclass(slots=True, kw_only=True)
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
        """Mean of the finite values; None without any, or if it overflows."""
        return self.total / self.finite if self.finite and math.isfinite(self.total) else None

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


@dataclass(slots=True, kw_only=True)
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
        is_finite = math.isfinite(value)
        self.bad += not is_finite
        if self._filled == self.width or not self.buckets:
            self.buckets.append(Bucket(step=step, kimg=kimg, seconds=seconds))
            self._filled = 0
        bucket = Bucket(step=step, kimg=kimg, seconds=seconds, bad=int(not is_finite))
        if is_finite:
            bucket.low = bucket.high = bucket.total = value
            bucket.finite = 1
        self.buckets[-1].merge(bucket)
        self._filled += 1
        if len(self.buckets) > CAPACITY:
            self._halve()

    def points(self) -> list[Point]:
        """Return the mean and the range of each bucket."""
        return [
            Point(b.step, b.kimg, b.seconds, value=b.mean, low=b.low, high=b.high, bad=b.bad > 0) for b in self.buckets
        ]

    def _halve(self) -> None:
        """Merge buckets in pairs; the latest has no partner, since CAPACITY is even."""
        for earlier, later in zip(self.buckets[:-1:2], self.buckets[1::2], strict=True):
            earlier.merge(later)
        self.buckets = self.buckets[::2]
        self.width *= 2
