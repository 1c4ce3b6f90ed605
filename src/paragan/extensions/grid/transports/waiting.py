"""Waits for other workers, and their errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from paragan.core.errors import RankError

_LOOK_S = 0.05  # polling interval of `stopped`


class WorkerError(RankError):
    """Failure of another worker: unreachable, silent or out of step. worker: its rank."""

    def __init__(self, message: str, worker: int) -> None:
        super().__init__(message)
        self.worker = worker


def wait_until(
    missing: Callable[[], list[int]], timeout_s: float, stopped: Callable[[], bool], rest: Callable[[float], object]
) -> None:
    """Wait until no worker is missing. rest: waits for a change, at most so many seconds."""
    began = time.monotonic()
    while left := missing():
        waited_s = time.monotonic() - began
        if stopped():
            raise WorkerError(f"stopped after {waited_s:.1f} s of waiting for {format_workers(left)}", left[0])
        if waited_s >= timeout_s:
            raise WorkerError(f"{format_workers(left)} did not answer within {timeout_s:g} s", left[0])
        rest(min(_LOOK_S, timeout_s - waited_s))


class Backoff:
    """A polling delay: a sixteenth of the time waited so far, between min_s and max_s."""

    def __init__(self, min_s: float, max_s: float) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._began = time.monotonic()

    def __call__(self, limit_s: float) -> None:
        waited_s = time.monotonic() - self._began
        time.sleep(min(max(self._min_s, waited_s / 16), self._max_s, limit_s))


def format_workers(workers: Iterable[int]) -> str:
    """Return `worker 1` or `workers 1, 3`."""
    numbers = sorted(workers)
    return f"worker{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"


def failed_error(worker: int, reason: object) -> WorkerError:
    """Return the error of a worker that ended, or whose connection broke."""
    return WorkerError(f"worker {worker} failed: {str(reason)[:200]}", worker)


def check_size(size: int, max_size: int, worker: int) -> int:
    """Return the size of a message of another worker; `WorkerError` unless it is 0 to `max_size`."""
    if 0 <= size <= max_size:
        return size
    raise WorkerError(f"worker {worker} sends a message of size {size}; the limit is {max_size}", worker)
