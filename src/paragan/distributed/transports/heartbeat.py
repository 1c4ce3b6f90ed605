"""Heartbeats: a worker reports its state from a separate thread, also while it does not train."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

_MOST_CHARACTERS = 200


class WorkerState(Enum):
    """State of a worker. Finished: its results wait to be gathered. Failed: permanently."""

    INACTIVE = "inactive"
    PROCESSING = "processing"
    FINISHED = "finished"
    FAILED = "failed"

    def transition_to(self, other: WorkerState) -> WorkerState:
        """Return `other`. Raises `ValueError` if this transition is not allowed."""
        if other not in _AFTER[self]:
            known = " or ".join(state.value for state in _AFTER[self]) or "no other"
            raise ValueError(f"found {other.value} after {self.value}, expected {known}")
        return other


_AFTER = {
    WorkerState.INACTIVE: (WorkerState.PROCESSING, WorkerState.FAILED),
    # inactive: its cells are on other workers; processing: more cells to train
    WorkerState.PROCESSING: (WorkerState.FINISHED, WorkerState.INACTIVE, WorkerState.FAILED),
    WorkerState.FINISHED: (WorkerState.PROCESSING, WorkerState.INACTIVE, WorkerState.FAILED),
    WorkerState.FAILED: (),
}


class WorkerStatus:
    """State that a worker's heartbeats report. Thread-safe.

    Used as `PeriodicHeartbeat(line.send, every_s, status)`; some transitions may go unreported.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = WorkerState.INACTIVE
        self._generation = 0
        self._generation_s: float | None = None
        self._progress = 0

    def set_state(self, state: WorkerState) -> None:
        """Change the state. Raises `ValueError` if the transition is not allowed."""
        with self._lock:
            if state is not self._state:
                self._state = self._state.transition_to(state)

    def record_progress(self) -> None:
        """Count a unit of progress: a worker can be alive without making any."""
        self._progress += 1  # one thread writes

    def set_generation(self, generation: int, generation_s: float) -> None:
        """Record the number of finished generations, and the seconds of the last."""
        with self._lock:
            self._generation = generation
            self._generation_s = generation_s

    def __call__(self) -> dict[str, Any]:
        with self._lock:
            found = {"state": self._state.value, "generation": self._generation}
            return found | {"generation_s": self._generation_s, "progress": self._progress}


class PeriodicHeartbeat:
    """Sender of heartbeats, at once and every `every_s`: a `count` and the values of `state()`.

    send: as `ControlConnection.send`. An exception in `state()` is sent as `trouble`: the worker is
    alive. ended: why no more heartbeats are sent.
    """

    def __init__(self, send: Callable[..., None], every_s: float, state: Callable[[], Mapping[str, Any]]) -> None:
        self._send = send
        self._every_s = every_s
        self._state = state
        self._over = threading.Event()
        self.ended: str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="beats")
        self._thread.start()

    def close(self, wait_s: float = 15.0) -> None:
        """Stop sending heartbeats, after the current one. The connection stays open."""
        self._over.set()
        self._thread.join(wait_s)

    def _run(self) -> None:
        count = 0
        while not self._over.is_set():
            try:
                self._beat(count)
            except Exception as error:  # closed connection, which its owner reports
                self.ended = str(error)[:_MOST_CHARACTERS]
                return
            count += 1
            self._over.wait(self._every_s)
        self.ended = "closed by this end"

    def _beat(self, count: int) -> None:
        try:
            values = dict(self._state())
        except Exception as error:
            values = _error_report(error)
        try:
            self._send("beat", **{**values, "count": count})
        except (TypeError, ValueError) as error:  # values that are not JSON
            self._send("beat", **_error_report(error), count=count)


def _error_report(error: Exception) -> dict[str, Any]:
    return {"trouble": f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]}
