"""Operations of one stage of loading: how many, and how many seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock


class Operations:
    """Completed operations of the threads of a stage, and their seconds up to now."""

    def __init__(self, lock: RLock) -> None:
        self.num_completed = 0
        self._lock = lock
        self._busy_s = 0.0
        self._num_running = 0
        self._changed_s = time.monotonic()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count the operation that runs in this context."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def busy_s(self) -> float:
        """Return the seconds of all operations, also of those that run."""
        return self._busy_s + self._num_running * (time.monotonic() - self._changed_s)

    def _change(self, difference: int) -> None:
        with self._lock:
            self._busy_s = self.busy_s()
            self._changed_s = time.monotonic()
            self._num_running += difference
            self.num_completed += difference < 0
