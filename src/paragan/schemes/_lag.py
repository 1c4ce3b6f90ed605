"""How far apart two players may be, and what is told of how far they were."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class LagBound:
    """staleness: S, of G's opponent. age: A, of the fakes that D is shown. k: D's updates per step. reuse: D is shown
    the fakes of G's own turn, instead of some made for it.

    g_batch: images of G's turn over all its ranks; as many as D's unless given. lag_lr: c of a learning rate that is
    multiplied by 1 / (1 + c lag). fall_back: factor of the alarm. order: what each update is to use, as `Told.used` has
    it, instead of what has come. stopped: looked at while waiting; then it ends with a `RankError`.
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

    @property
    def is_late(self) -> bool:
        """Whether either player may answer to what the other no longer is."""
        return bool(self.staleness or self.age)

    @property
    def room(self) -> int:
        """Messages that may be under way on a link."""
        return self.k * (max(self.staleness, self.age) + 2)


@dataclass
class LagRecord:
    """For the record. lags: how often the opponent, or a fake, was so many steps old. waits: how often an update waited
    for the other side for up to so many milliseconds (powers of 2), wait_s: in all.

    used: for each of G's updates the version of D that it met; for each of D's how many deliveries had come.
    in_step_at: the version at which S fell to 0.
    """

    lags: Counter[int] = field(default_factory=Counter)
    waits: Counter[int] = field(default_factory=Counter)
    wait_s: float = 0.0
    used: list[int] = field(default_factory=list)
    in_step_at: int | None = None

    def record_wait(self, seconds: float) -> None:
        self.wait_s += seconds
        self.waits[0 if seconds < 5e-4 else 1 << max(0, math.ceil(math.log2(seconds * 1000)))] += 1

    def drain(self) -> dict[str, Any]:
        """All of it as JSON has it, since the last time."""
        told = {"lags": dict(self.lags), "waits_ms": dict(self.waits), "wait_s": round(self.wait_s, 4)}
        told |= {"used": self.used, "in_step_at": self.in_step_at}
        self.lags, self.waits, self.wait_s, self.used = Counter(), Counter(), 0.0, []
        return told
