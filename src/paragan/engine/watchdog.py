"""Watchdog: a thread that detects that a training thread makes no progress."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from paragan.core.phases import WHOLE, Phase, PhaseClock

_MIN_DURATIONS = 3  # of a phase, from which its limit is learned
_SHARE = 0.99  # quantile of the durations
_WHOLE_FACTOR = 5  # least limit of checkpoints and evaluations, as a multiple of `floor_s`
_MAX_PERIOD_S = 1.0


@dataclass(frozen=True)
class HangLimits:
    """Limits of the time without progress by phase, which are learned from its durations.

    floor_s: least limit. max_s: largest one. factor: limit as a multiple of the 99th percentile.
    """

    floor_s: float
    max_s: float = math.inf
    factor: float = 20.0

    def seconds(self, phase: Phase, clock: PhaseClock) -> float:
        """Return the limit of a phase; the largest one until some of its durations are known."""
        durations = clock.durations[phase]
        if durations.count < _MIN_DURATIONS:
            return self.max_s
        min_s = self.floor_s * (_WHOLE_FACTOR if phase in WHOLE else 1)
        return min(max(min_s, self.factor * durations.quantile(_SHARE)), self.max_s)


@dataclass(frozen=True)
class Progress:
    """State of a training thread: its phase, for how long, and how long its process was suspended."""

    phase: Phase
    seconds: float
    suspended_s: float = 0.0


class Watchdog:
    """Thread that looks at a clock of phases until the `with` block ends.

    on_stall: called with the limit, if the clock shows no progress for longer; True: it only waits, and the count
    begins anew. on_look: called at each look. Both are called in this thread. A look counts at most twice the period,
    so that time in which the process was suspended, or the machine slept, is no lack of progress.
    """

    def __init__(
        self,
        clock: PhaseClock,
        limits: HangLimits,
        on_stall: Callable[[float], bool | None],
        on_look: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.period_s = min(_MAX_PERIOD_S, limits.floor_s / 4)
        self._clock = clock
        self._limits = limits
        self._on_stall = on_stall
        self._on_look = on_look
        self._now = now
        self._looked = now()
        self._changes = clock.changes
        self._stalled_s = 0.0
        self._is_reported = False  # the lack of progress that lasts
        self._suspended_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join(_MAX_PERIOD_S)

    def progress(self) -> Progress:
        """Return the longest stretch of a phase since the look before; valid inside `on_stall` and `on_look`."""
        phase, seconds = self._clock.stretch()
        return Progress(phase, seconds, self._suspended_s)

    def look(self) -> None:
        """Compare the time without progress with the limit."""
        now = self._now()
        elapsed_s = now - self._looked
        self._looked = now
        # a busy machine may delay a look by a period or two, but not by four: this thread was stopped
        self._suspended_s = elapsed_s if elapsed_s > 4 * self.period_s else 0.0
        if self._changes == self._clock.changes:
            self._stalled_s += min(elapsed_s, 2 * self.period_s)
        else:
            self._changes = self._clock.changes
            self._stalled_s = 0.0
            self._is_reported = False
        limit_s = self._limits.seconds(self._clock.current, self._clock)
        if self._stalled_s > limit_s and not self._is_reported:
            self._is_reported = not self._on_stall(limit_s)
            self._stalled_s = 0.0
        self._on_look()
        self._clock.longest = (self._clock.current, 0.0)

    def _run(self) -> None:
        while not self._ended.wait(self.period_s):
            self.look()
