"""Threads of one stage of loading, their operations, and the measurements of all stages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class LoadingStatistics:
    """Limits and measurements of a pipeline at one moment; counts and sums are since its start.

    fetch_s: seconds of the last reads, at most 256, oldest first; num_fetches counts all. wait_s:
    seconds that the consumer waited for batches, num_batches those it took. num_encoded: parts
    between the stages. num_ready: finished batches. bytes_held: of both, and of what is in work.
    """

    depth: int = 0
    readers: int = 0
    decoders: int = 0
    fetch_s: tuple[float, ...] = ()
    num_fetches: int = 0
    wait_s: float = 0.0
    num_batches: int = 0
    num_encoded: int = 0
    num_ready: int = 0
    bytes_held: int = 0
    max_bytes: int | None = None


@dataclass(kw_only=True)
class StageThreads:
    """Threads of one stage. target: as many as there should be."""

    name: str
    work: Callable[[], None]
    wakeup: threading.Condition
    target: int = 0
    num_alive: int = 0
    threads: list[threading.Thread] = field(default_factory=list)

    def resize(self, target: int) -> None:
        """Start threads up to the target; superfluous ones end after their part."""
        self.target = target
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        while self.num_alive < target:
            thread = threading.Thread(target=self.work, name=f"loading {self.name}", daemon=True)
            self.threads.append(thread)
            self.num_alive += 1
            thread.start()
        self.wakeup.notify_all()


class Operations:
    """Completed operations of the threads of a stage, and their seconds up to now."""

    def __init__(self, lock: threading.RLock) -> None:
        self.num_completed = 0
        self._lock = lock
        self._busy_s = 0.0
        self._num_running = 0
        self._changed_s = time.monotonic()

    @contextmanager
    def running(self) -> Iterator[None]:
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
