"""Bounds on the age of opponents and fakes, and the record of their actual age."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paragan.core.errors import ConfigError


@dataclass(frozen=True)
class LagBound:
    """Bounds and options of an asynchronous step.

    staleness: S, the most steps that G's opponent may be old. age: A, the most steps that the fakes
    for D may be old. k: D's updates per step. reuse: D trains on the fakes of G's turns, instead of
    others. g_batch: images of G's turn over all its ranks; None: as many as D's. lag_lr: c of a
    learning rate that is multiplied by 1 / (1 + c lag). fall_back: factor of the gradient alarm.
    order: what each update must use, as in `LagRecord.used`, instead of what has arrived. stopped:
    polled while waiting; True ends the wait with a `RankError`. refresh: R, the steps between two
    states that D sends, at most max(1, S): then G never waits for a state that D does not send.
    sends_differences: of D's states, in bfloat16. rounds_fakes: the samples that D receives are
    rounded to bfloat16. predict: of `PredictedOpponent`; 0: none.
    """

    staleness: int = 1
    age: int = 0
    k: int = 1
    reuse: bool = True
    g_batch: int | None = None
    lag_lr: float = 0.0
    fall_back: float | None = None
    order: Sequence[int] | None = None
    timeout_s: float = 300.0
    stopped: Callable[[], bool] = lambda: False
    refresh: int = 1
    sends_differences: bool = False
    rounds_fakes: bool = False
    predict: float = 0.0

    def __post_init__(self) -> None:
        if self.refresh > max(1, self.staleness):
            raise ConfigError(
                f"scheme.refresh={self.refresh} is larger than scheme.staleness={self.staleness}: G would wait for "
                f"states that D does not send; pass scheme.staleness={self.refresh}, or a smaller scheme.refresh"
            )

    @property
    def allows_lag(self) -> bool:
        """Whether either player may train against an earlier version of the other."""
        return bool(self.staleness or self.age)

    def required_step(self, g_step: int, bound: int | None = None) -> int:
        """Return how many steps D must have made before G's update number `g_step`, from 1."""
        return max(0, g_step - (self.staleness if bound is None else bound))

    def required_fakes(self, d_step: int, bound: int | None = None) -> int:
        """Return the version of G whose images D's step `d_step`, from 0, needs at least."""
        return max(0, d_step - (self.age if bound is None else bound))

    @property
    def max_in_flight(self) -> int:
        """Messages that may be in flight on a link; one is sent in addition when both pause."""
        return self.k * (max(self.staleness, self.age) + 2) + 1


@dataclass
class LagRecord:
    """Lags and waits of one player, for the record.

    lags: number of opponents, or fakes, by age in steps. waits: number of updates by time of their
    wait for the other side, in milliseconds rounded up to a power of 2; wait_s: seconds in all.
    used: for each update of G the version of its opponent D; for each update of D the number of
    deliveries received. in_step_at: version at which S became 0.
    """

    lags: Counter[int] = field(default_factory=Counter)
    waits: Counter[int] = field(default_factory=Counter)
    wait_s: float = 0.0
    used: list[int] = field(default_factory=list)
    in_step_at: int | None = None

    def record_wait(self, seconds: float) -> None:
        """Add the wait of one update."""
        self.wait_s += seconds
        self.waits[0 if seconds < 5e-4 else 1 << max(0, math.ceil(math.log2(seconds * 1000)))] += 1

    def drain(self) -> dict[str, Any]:
        """Return all values as JSON and reset them, except `in_step_at`."""
        waits: dict[str, Any] = {"waits_ms": dict(self.waits), "wait_s": round(self.wait_s, 4)}
        values = {"lags": dict(self.lags), **waits, "used": self.used, "in_step_at": self.in_step_at}
        self.lags = Counter()
        self.waits = Counter()
        self.wait_s = 0.0
        self.used = []
        return values
