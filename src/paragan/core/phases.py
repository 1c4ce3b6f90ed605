"""Phases of a training process: what its time is spent on, and whether it makes progress."""

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
    """What a training thread does; `OTHER`: writers, telemetry's events, the loop itself.

    D_TURN: turns of D and of extra players.
    """

    DATA = "data"
    D_TURN = "d_turn"
    G_TURN = "g_turn"
    COMMUNICATION = "communication"
    OPTIMIZER = "optimizer"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    OTHER = "other"


WHOLE = (Phase.CHECKPOINT, Phase.EVALUATION)
"""Phases that include all that happens in them, such as waits for other ranks: no other phase begins inside."""
_SMALLEST = -20  # power of 2 of the first bin, in seconds
_NUM_BINS = 40


class Durations:
    """Histogram of durations by powers of 2 of a second; may be read by another thread."""

    def __init__(self) -> None:
        self.count = 0
        self._bins = [0] * _NUM_BINS

    def add(self, seconds: float) -> None:
        """Count a duration."""
        power = math.frexp(seconds)[1] if seconds else _SMALLEST  # seconds < 2 ** power
        self._bins[min(max(power - _SMALLEST, 0), _NUM_BINS - 1)] += 1
        self.count += 1

    def quantile(self, share: float) -> float:
        """Return a bound on this share of the durations, at most twice the least such bound."""
        needed = share * self.count  # durations at or below the quantile, less those of the bins passed
        number = 0
        while number < _NUM_BINS - 1 and self._bins[number] < needed:
            needed -= self._bins[number]
            number += 1
        return math.ldexp(1.0, number + _SMALLEST)


class PhaseClock:
    """Seconds of a thread by phase, which add up to the time since its start.

    changes: number of changes of phase and beats so far, the sign of progress. work: what the thread works
    on, such as a cell of a grid; empty: the only game. durations: of the stretches of each phase, without a
    change or beat. longest: phase and seconds of the longest stretch that has ended; a thread that watches this
    one sets it back to 0 s when it has read it.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self.seconds = dict.fromkeys(Phase, 0.0)
        self.durations = {phase: Durations() for phase in Phase}
        self.current = Phase.OTHER
        self.changes = 0
        self.work = ""
        self.longest = (Phase.OTHER, 0.0)

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
        if spent > self.longest[1]:
            self.longest = self.current, spent
        self.changes += 1

    def stretch(self) -> tuple[Phase, float]:
        """Return phase and seconds of the longest stretch since `longest` was set; for any thread."""
        lasting = self.current, self._now() - self._began  # first: one that ends meanwhile is in `longest`
        return max(self.longest, lasting, key=lambda stretch: stretch[1])


_thread = threading.local()


def set_thread_clock(clock: PhaseClock | None) -> None:
    """Count the phases of this thread on a clock; None: no longer."""
    _thread.clock = clock


def thread_clock() -> PhaseClock | None:
    """Return the clock of this thread, if any."""
    return getattr(_thread, "clock", None)


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Be in a phase inside the block, or the decorated function; then in the one before."""
    clock = thread_clock()
    if clock is None:
        yield
    elif clock.current in WHOLE:
        clock.beat()  # still a sign of progress
        yield
    else:
        before = clock.enter(name)
        try:
            yield
        finally:
            clock.enter(before)


def turn_phase(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method of a player: it is in the phase of G's turns, or of the others'."""

    @wraps(method)
    def in_phase(*args: P.args, **options: P.kwargs) -> T:
        player: Any = args[0]  # of a room above; and `Side` would import torch, which this file does not
        with phase(Phase.G_TURN if player.side.value == "g" else Phase.D_TURN):
            return method(*args, **options)

    return in_phase


@contextmanager
def work_on(name: str) -> Iterator[None]:
    """Name what this thread works on inside the block, a part of what is named around it."""
    clock = thread_clock()
    if clock is None:
        yield
        return
    before = clock.work
    clock.work = f"{name} of {before}" if before else name
    try:
        yield
    finally:
        clock.work = before


def beat() -> None:
    """Report progress inside of a phase of this thread."""
    if (clock := thread_clock()) is not None:
        clock.beat()
