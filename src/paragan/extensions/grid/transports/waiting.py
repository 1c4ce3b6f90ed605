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
            text = f"stopped after {waited_s:.1f} s of waiting for {format_workers(left)}"
            raise WorkerError(text, left[0])
        if waited_s >= timeout_s:
            text = f"{format_workers(left)} did not answer within {timeout_s:g} s"
            raise WorkerError(text, left[0])
        rest(min(_LOOK_S, timeout_s - waited_s))


class Backoff:
    """A polling delay: a sixteenth of the time waited so far, between first_s and most_s."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._began = time.monotonic()

    def __call__(self, at_most_s: float) -> None:
        waited_s = time.monotonic() - self._began
        time.sleep(min(max(self._first_s, waited_s / 16), self._most_s, at_most_s))


def format_workers(workers: Iterable[int]) -> str:
    """Return `worker 1` or `workers 1, 3`."""
    found = sorted(workers)
    return f"worker{'s' * (len(found) != 1)} {', '.join(map(str, found)) or '(none)'}"


def failed_error(worker: int, reason: object) -> WorkerError:
    """Return the error of a worker that ended, or whose connection broke."""
    return WorkerError(f"worker {worker} failed: {str(reason)[:200]}", worker)


def check_size(size: int, most: int, worker: int) -> int:
    """Return the size of a message of another worker; `WorkerError` unless it is 0 to `most`."""
    if 0 <= size <= most:
        return size
    raise WorkerError(f"worker {worker} sends a message of size {size}; the limit is {most}", worker)


def never_stopped() -> bool:
    """Return False: the default of `stopped`."""
    return False
