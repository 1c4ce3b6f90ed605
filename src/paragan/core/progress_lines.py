"""Lines of progress for work that takes longer than some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paragan.core.phases import beat

_PERIOD_S = 10.0  # between two lines


@dataclass(kw_only=True)
class ProgressLines:
    """Function that reports a count of finished items: a line every 10 s, none for shorter work.

    label: first word of the line. unit: what is counted. say: receives the lines.
    """

    label: str
    unit: str
    total: int
    say: Callable[[str], None]
    _began: float = field(default_factory=time.monotonic)
    _said: float = field(default_factory=time.monotonic)

    def __call__(self, done: int) -> None:
        """Report that `done` items are finished."""
        beat()
        now = time.monotonic()
        if now - self._said < _PERIOD_S or not 0 < done < self.total:
            return
        left_s = (now - self._began) / done * (self.total - done)
        self._said = now
        self.say(f"{self.label:<9} {done:,} of {self.total:,} {self.unit}, about {left_s:.0f} s left")
