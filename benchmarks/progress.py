"""Progress of a benchmark: one line per finished piece of work on standard error, with the time left."""

from __future__ import annotations

import sys
import time


class ProgressLog:
    """Elapsed and remaining time. total: amount of work in any unit."""

    def __init__(self, total: float) -> None:
        self.total = total
        self.done = 0.0
        self.start = time.monotonic()

    def advance(self, label: str, work: float) -> None:
        """Add `work` to what is done and print a line."""
        self.done += work
        elapsed = time.monotonic() - self.start
        left = max(elapsed / self.done * (self.total - self.done), 0.0)
        print(f"{label}: {elapsed / 60:.1f} min, about {left / 60:.0f} min left", file=sys.stderr, flush=True)
