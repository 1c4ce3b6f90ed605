"""Load of one stage of the loading pipeline, and its number of threads by their utilisation."""

from __future__ import annotations

import math
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


class _Sums(NamedTuple):
    time_s: float
    completed: int
    busy_s: float


@dataclass(frozen=True, kw_only=True)
class StageLoad:
    """Load of a stage at a time.

    latency_s: mean seconds of an operation. need: threads that would be busy if the consumer never
    waited. surge: the same over the window with the highest lower bound; surge_bound: that bound.
    calm_bound: upper bound over the last `HOLD_S`; infinite until then.
    """

    time_s: float
    latency_s: float
    need: float
    surge: float
    surge_bound: float
    calm_bound: float


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
        # a window counts with its lower bound, so that one slow read of few starts no threads
        deviations = 2 if has_stalls else 3
        surges = [_surge(past, now, deviations) for past in windows if time_s - past.time_s <= MAX_SURGE_S]
        bound_s, latency_s = max(surges, default=(0.0, 0.0))
        need = demand * self._latency_s
        held = next((past for past in windows if time_s - past.time_s >= HOLD_S), None)
        calm = math.inf if held is None else max(need if completed == held.completed else 0, demand * _calm(held, now))
        return StageLoad(
            time_s=time_s,
            latency_s=self._latency_s,
            need=need,
            surge=demand * latency_s,
            surge_bound=demand * bound_s,
            calm_bound=calm,
        )

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
    RESERVE = "training takes batches at another rate"
    LIMIT = "limit of threads or memory"


class StageSize:
    """Threads of one stage: grow at once to what is needed, give back after `HOLD_S`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.meter = StageMeter()
        self._grown_at = -math.inf

    def update(self, load: StageLoad, min_size: int, max_size: int) -> Reason:
        """Change `size` within both limits and return why; not within the dead band."""
        max_size = max(min_size, max_size)
        if not min_size <= self.size <= max_size:  # limits may have changed: memory, or the size of a batch
            self.size = min(max(self.size, min_size), max_size)
            return Reason.LIMIT
        is_surge = load.surge_bound > max(load.need, GROW_ABOVE * self.size)
        need = load.surge if is_surge else load.need
        if need > GROW_ABOVE * self.size and self.size < max_size:
            if load.time_s - self._grown_at < COOLDOWN_S:
                return Reason.NONE
            self._grown_at = load.time_s
            self.size = min(math.ceil(need / TARGET), MAX_GROWTH * self.size, max_size)
            return Reason.CONGESTION
        # not sooner than the window of the calm bound is long: it would still hold the surge
        if load.time_s - self._grown_at < HOLD_S or self.size == min_size:
            return Reason.NONE
        if load.calm_bound <= max(TARGET * min_size, SHRINK_BELOW * self.size):
            self.meter.forget(load.time_s - HOLD_S)  # or the passed surge would let the stage grow again
            self.size = max(min_size, math.ceil(load.calm_bound / TARGET))
            return Reason.CALM
        return Reason.NONE
