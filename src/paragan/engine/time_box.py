"""Limit of the time that inline scores take, as a share of the session's time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from paragan.core.phases import Phase, phase


@dataclass
class TimeBox:
    """Time of the scores of a session. max_share: limit of their share; None: none."""

    max_share: float | None = None
    began: float = field(default_factory=time.monotonic)
    _spent_s: float = 0.0
    _last_s: float | None = None  # without the work that only the first score has

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count the time inside as that of a score."""
        start = time.monotonic()
        with phase(Phase.EVALUATION):
            yield
        self._spent_s += time.monotonic() - start

    def expect(self, seconds: float) -> None:
        """Expect that the next score takes this long."""
        self._last_s = seconds

    def refusal(self) -> str:
        """Return why one more score now would exceed the limit; empty if it would not."""
        if self.max_share is None or self._last_s is None:
            return ""
        elapsed_s = time.monotonic() - self.began
        share = (self._spent_s + self._last_s) / max(elapsed_s + self._last_s, 1e-9)
        if share <= self.max_share:
            return ""
        return f"scores would take {share:.0%} of the time (evaluation.max_time_share={self.max_share:g})"
