"""Phases of a training process: what its time is spent on, and whether it makes progress."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Phase(StrEnum):
    """What a training thread does; `OTHER`: writers, telemetry's events, the loop itself."""

    DATA = "data"
    D_TURN = "d_turn"
    G_TURN = "g_turn"
    COMMUNICATION = "communication"
    OPTIMIZER = "optimizer"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    OTHER = "other"


WHOLE = (Phase.CHECKPOINT, Phase.EVALUATION)
"""Phases that include all that happens in them, such as waits for other ranks."""
_SMALLEST = -20  # power of 2 of the first bin, in seconds
_NUM_BINS = 40


class Durations:
    """Histogram of durations by powers of 2 of a second; may be read by another thread."""

    def __init__(self) -> None:
        self.count = 0
        self._bins = [0] * _NUM_BINS

    def add(self, seconds: float) -> None:
        """Count a duration."""
        power = math.frexp(seconds)[1]  # seconds < 2 ** power
        self._bins[min(max(power - _SMALLEST, 0), _NUM_BINS - 1)] += 1
        self.count += 1

    def quantile(self, share: float) -> float:
        """Return a bound on this share of the durations, at most twice the least such bound."""
        needed = share * self.count
        for number, count in enumerate(self._bins):
            needed -= count
            if needed <= 0:
                break
        return math.ldexp(1.0, number + _SMALLEST)


class PhaseClock:
    """Seconds of a thread by phase, which add up to the time since its start.

    changes: number of changes of phase and beats so far, the sign of progress. durations: of the
    uninterrupted stretches of each phase.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self.seconds = dict.fromkeys(Phase, 0.0)
        self.durations = {phase: Durations() for phase in Phase}
        self.current = Phase.OTHER
        self.changes = 0

    def enter(self, phase: Phase) -> Phase:
        """Begin a phase; return the one that ends."""
        before = self.current
        self.beat()
        self.current = phase
        return before

    def beat(self) -> None:
        """Report progress inside of a phase."""
        now = self._now()
        spent = now - self._began
        self._began = now
        self.seconds[self.current] += spent
        self.durations[self.current].add(spent)
        self.changes += 1


_thread = threading.local()


def install(clock: PhaseClock | None) -> None:
    """Count the phases of this thread on a clock; None: no longer."""
    _thread.clock = clock


def installed() -> PhaseClock | None:
    """Return the clock of this thread, if any."""
    return getattr(_thread, "clock", None)


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Be in a phase inside the block, or the decorated function; then in the one before."""
    clock = installed()
    if clock is None:
        yield
    elif clock.current in WHOLE:
        clock.beat()
        yield
    else:
        before = clock.enter(name)
        try:
            yield
        finally:
            clock.enter(before)


def turn_phase(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method of a player: it is in the phase of a turn of its side."""

    @wraps(method)
    def inside(*args: P.args, **options: P.kwargs) -> T:
        player: Any = args[0]
        with phase(Phase(f"{player.side.value}_turn")):
            return method(*args, **options)

    return inside


def beat() -> None:
    """Report progress inside of a phase of this thread."""
    if (clock := installed()) is not None:
        clock.beat()
