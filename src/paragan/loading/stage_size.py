"""Load of one stage of the loading pipeline, and its number of threads by their utilisation."""

from __future__ import annotations

import math
import sys
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

MIN_COUNT = 48  # operations in the window of the latency
MIN_WINDOW_S = 0.5
MAX_SURGE_S = 2.0  # the longest window of a surge
HOLD_S = 3.0  # the window over which the need must be low before threads are given back
MAX_WINDOW_S = 10.0
TARGET = 0.6  # utilisation after a change
GROW_ABOVE = 0.9  # utilisation
SHRINK_BELOW = 0.4  # utilisation
MAX_GROWTH = 4  # factor of one change
COOLDOWN_S = 0.5  # between two changes upwards
PROBE_AFTER_S = 10.0  # of too few threads, before a probe whether half of them are as fast
PROBE_S = 2.0
PROBE_COUNT = 32  # operations, at least, in each of the two rates that a probe compares
MIN_GAIN = 0.25  # threads that bring less than this share of their part of the rate are given back
MAX_PROBE_S = 10.0
SETTLE_S = 5.0  # until the latency at a new limit is measured
NEW_LATENCY = 1.5  # factor of the latency that ends the limit of a probe
NO_LIMIT = sys.maxsize

_Point = tuple[float, int]  # time and completed operations


class _Sums(NamedTuple):
    time_s: float
    completed: int
    busy_s: float


@dataclass(frozen=True)
class StageLoad:
    """Load of a stage at a time.

    latency_s: mean seconds of an operation. need: threads that would be busy if the consumer never
    waited. surge: the same over the window with the highest lower bound; surge_bound: that bound.
    calm_bound: upper bound over the last `HOLD_S`; infinite until then. completed: operations
    since the start of the pipeline.
    """

    time_s: float
    latency_s: float
    need: float
    surge: float
    surge_bound: float
    calm_bound: float
    completed: int


class StageMeter:
    """Load of a stage over the last 10 s.

    Seconds of all operations, also of those in progress, divided by completed operations is the
    mean latency (Little's law); late operations raise it before they complete.
    """

    def __init__(self) -> None:
        self._history: deque[_Sums] = deque()
        self._latency_s = 0.0

    def update(self, time_s: float, completed: int, busy_s: float, demand: float, has_stalls: bool) -> StageLoad:
        """Add the sums at a time and return the load.

        demand: operations per second. has_stalls: the consumer waits now, so less evidence is
        enough for a surge.
        """
        now = _Sums(time_s, completed, busy_s)
        self._history.append(now)
        while self._history[0].time_s < time_s - MAX_WINDOW_S:
            self._history.popleft()
        windows = [past for past in reversed(self._history) if time_s - past.time_s >= MIN_WINDOW_S]
        start = next((past for past in windows if completed - past.completed >= MIN_COUNT), self._history[0])
        if completed > start.completed:
            self._latency_s = (busy_s - start.busy_s) / (completed - start.completed)
        deviations = 2 if has_stalls else 3
        surges = [_surge(past, now, deviations) for past in windows if time_s - past.time_s <= MAX_SURGE_S]
        bound_s, latency_s = max(surges, default=(0.0, 0.0))
        need = demand * self._latency_s
        held = next((past for past in windows if time_s - past.time_s >= HOLD_S), None)
        calm = math.inf if held is None else max(need if completed == held.completed else 0, demand * _calm(held, now))
        return StageLoad(time_s, self._latency_s, need, demand * latency_s, demand * bound_s, calm, completed)

    def forget(self, time_s: float) -> None:
        """Forget what was measured before a time."""
        while self._history[0].time_s < time_s:
            self._history.popleft()


def _surge(start: _Sums, now: _Sums, deviations: int) -> tuple[float, float]:
    """Return a lower bound of the latency over a window, and the latency.

    deviations: of a Poisson process; those of log-normal latencies are smaller.
    """
    busy_s = now.busy_s - start.busy_s
    count = now.completed - start.completed
    return busy_s / (count + deviations * math.sqrt(count + 1)), busy_s / max(count, 1)


def _calm(start: _Sums, now: _Sums) -> float:
    """Return an upper bound of the latency over a window: two standard deviations of a Poisson process."""
    count = now.completed - start.completed
    return (now.busy_s - start.busy_s) / max(count - 2 * math.sqrt(count), 0.5)


class Reason(StrEnum):
    """Why a stage changed its size."""

    NONE = ""
    CONGESTION = "congestion"
    CALM = "congestion has passed"
    SATURATION = "more threads are not faster"
    PROBE = "half of the threads were slower"
    RESERVE = "training takes batches at another rate"
    STALLS = "batches wait for slow reads"
    LIMIT = "limit of threads or memory"


class StageSize:
    """Threads of one stage: grow at once to what is needed, give back after `HOLD_S`.

    A stage whose threads do not suffice for `PROBE_AFTER_S` tries half of them, and stays there
    if that is as fast: storage or CPU is saturated. The smallest size that is as fast is its limit
    until the latency changes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.meter = StageMeter()
        self._grown_at = -math.inf
        self._saturation = Saturation()

    def update(self, load: StageLoad, least: int, most: int) -> Reason:
        """Change `size` within both limits and return why."""
        most = max(least, most)
        if not least <= self.size <= most:
            self.size = min(max(self.size, least), most)
            self._saturation = Saturation()
            return Reason.LIMIT
        self.size, reason = self._saturation.update(load, self.size, least, most)
        if reason is Reason.NONE and not self._saturation.is_probing:
            limit = min(most, self._saturation.limit)
            self.size, reason = self._follow(load, least, limit)
        return reason

    def suffices(self, load: StageLoad) -> bool:
        """Return whether the threads are enough for the load."""
        return load.need <= GROW_ABOVE * self.size

    def _follow(self, load: StageLoad, least: int, limit: int) -> tuple[int, Reason]:
        """Return the size for the need, and why, unless it is within the dead band."""
        is_surge = load.surge_bound > max(load.need, GROW_ABOVE * self.size)
        need = load.surge if is_surge else load.need
        if need > GROW_ABOVE * self.size and self.size < limit:
            if load.time_s - self._grown_at < COOLDOWN_S:
                return self.size, Reason.NONE
            self._grown_at = load.time_s
            return min(math.ceil(need / TARGET), MAX_GROWTH * self.size, limit), Reason.CONGESTION
        if load.time_s - self._grown_at < HOLD_S or self.size == least:
            return self.size, Reason.NONE
        suffices_least = load.calm_bound <= TARGET * least
        if suffices_least or load.calm_bound <= SHRINK_BELOW * self.size:
            self.meter.forget(load.time_s - HOLD_S)
            return max(least, math.ceil(load.calm_bound / TARGET)), Reason.CALM
        return self.size, Reason.NONE


class Saturation:
    """Search for the smallest size that is as fast as the present one, by halving it."""

    def __init__(self) -> None:
        self.limit = NO_LIMIT  # what the search has found
        self._deficient: _Point | None = None  # from when on the threads have not sufficed
        self._before: tuple[int, float] | None = None  # size and rate before the probe that runs
        self._changed: _Point = (0.0, 0)  # of the last change by the search
        self._latency_s: float | None = None  # at the limit; None: not measured yet

    @property
    def is_probing(self) -> bool:
        """Whether half of the threads are being tried."""
        return self._before is not None

    def update(self, load: StageLoad, size: int, least: int, most: int) -> tuple[int, Reason]:
        """Start or evaluate a probe; return the size and why it changed."""
        if self._before is not None:
            return self._evaluate(load, size, least)
        if self.limit != NO_LIMIT:
            if self._is_latency_new(load):
                self.limit = NO_LIMIT
                self._latency_s = None
            return size, Reason.NONE
        if load.need <= GROW_ABOVE * size or size == least or size < most:
            self._deficient = None
        elif self._deficient is None:
            self._deficient = (load.time_s, load.completed)
        elif load.time_s - self._deficient[0] >= PROBE_AFTER_S:
            return self._start(load, size, _rate(load, self._deficient), least)
        return size, Reason.NONE

    def _is_latency_new(self, load: StageLoad) -> bool:
        """Return whether the latency differs from that at the limit, which is measured first."""
        if load.time_s - self._changed[0] < SETTLE_S:
            return False
        if self._latency_s is None:
            self._latency_s = load.latency_s
        return not self._latency_s / NEW_LATENCY <= load.latency_s <= self._latency_s * NEW_LATENCY

    def _start(self, load: StageLoad, size: int, rate: float, least: int) -> tuple[int, Reason]:
        self._before = (size, rate)
        self._changed = (load.time_s, load.completed)
        return max(least, size // 2), Reason.SATURATION

    def _evaluate(self, load: StageLoad, size: int, least: int) -> tuple[int, Reason]:
        assert self._before is not None
        since_s = load.time_s - self._changed[0]
        is_over = since_s >= MAX_PROBE_S or load.completed - self._changed[1] >= PROBE_COUNT
        if since_s < PROBE_S or not is_over:
            return size, Reason.NONE
        before, rate_before = self._before
        rate = _rate(load, self._changed)
        is_as_fast = rate >= rate_before * (1 - MIN_GAIN * (1 - size / before))
        if is_as_fast and size > least:
            return self._start(load, size, rate, least)
        self._before = None
        self._deficient = None
        self.limit = size if is_as_fast else before
        self._changed = (load.time_s, load.completed)
        return self.limit, Reason.NONE if is_as_fast else Reason.PROBE


def _rate(load: StageLoad, since: _Point) -> float:
    return (load.completed - since[1]) / (load.time_s - since[0])
