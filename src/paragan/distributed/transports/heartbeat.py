"""Heartbeats: a worker reports what it does, from a thread of its own, whether or not it trains at that moment.

`failure_detector` tells who is silent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol

_MOST_CHARACTERS = 200


class WorkerState(Enum):
    """Of a worker. Inactive: it has no cells. Finished: what it has found waits to be gathered. Failed: for good."""

    INACTIVE = "inactive"
    PROCESSING = "processing"
    FINISHED = "finished"
    FAILED = "failed"

    def transition_to(self, other: WorkerState) -> WorkerState:
        """`other`, or a `ValueError` where it does not follow on this one."""
        if other not in _AFTER[self]:
            known = " or ".join(state.value for state in _AFTER[self]) or "no other"
            raise ValueError(f"found {other.value} after {self.value}, expected {known}")
        return other


_AFTER = {
    WorkerState.INACTIVE: (WorkerState.PROCESSING, WorkerState.FAILED),
    WorkerState.PROCESSING: (
        WorkerState.FINISHED,
        WorkerState.INACTIVE,
        WorkerState.FAILED,
    ),  # inactive: its cells went elsewhere
    WorkerState.FINISHED: (
        WorkerState.PROCESSING,
        WorkerState.INACTIVE,
        WorkerState.FAILED,
    ),  # processing: there is more to do
    WorkerState.FAILED: (),
}


class WorkerStatus:
    """The state that a worker's heartbeats report: `PeriodicHeartbeat(line, every_s, status)`. Thread-safe.

    A coordinator sees it only now and then: between two beats there may have been more than one transition.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state, self._generation = WorkerState.INACTIVE, 0
        self._generation_s: float | None = None
        self._progress = 0

    def set_state(self, state: WorkerState) -> None:
        """`ValueError` where that may not follow; to stay what it is, is nothing."""
        with self._lock:
            if state is not self._state:
                self._state = self._state.transition_to(state)

    def record_progress(self) -> None:
        """Something was done: whoever only lives does not come here."""
        self._progress += 1  # one thread writes

    def set_generation(self, generation: int, generation_s: float) -> None:
        """That many generations are done, the last in so many seconds."""
        with self._lock:
            self._generation, self._generation_s = generation, generation_s

    def __call__(self) -> dict[str, Any]:
        with self._lock:
            found = {"state": self._state.value, "generation": self._generation}
            return found | {"generation_s": self._generation_s, "progress": self._progress}


class MessageSender(Protocol):
    """A `control.ControlConnection`, or whatever else sends."""

    def send(self, kind: str, **values: Any) -> None: ...


class PeriodicHeartbeat:
    """Sends `beat` at once and every `every_s`, with a `count` and what `state()` says, until closed or told it cannot.

    What goes wrong in `state()` is sent as `trouble`: the worker lives. `ended` tells why no more beats are sent.
    """

    def __init__(
        self,
        line_or_send: MessageSender | Callable[..., None],
        every_s: float,
        state: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._send = line_or_send if callable(line_or_send) else line_or_send.send
        self._every_s, self._state = every_s, state
        self._over = threading.Event()
        self.ended: str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="beats")
        self._thread.start()

    def close(self, wait_s: float = 15.0) -> None:
        """No beat begins any more; one that is under way is waited for. The line stays open."""
        self._over.set()
        self._thread.join(wait_s)

    def _run(self) -> None:
        count = 0
        while not self._over.is_set():
            try:
                self._beat(count)
            except Exception as error:  # a `RankError` of a line that is gone; its owner is told there, too
                self.ended = str(error)[:_MOST_CHARACTERS]
                return
            count += 1
            self._over.wait(self._every_s)
        self.ended = "closed by this end"

    def _beat(self, count: int) -> None:
        try:
            told = dict(self._state())
        except Exception as error:
            told = _error_report(error)
        try:
            self._send("beat", **{**told, "count": count})
        except (TypeError, ValueError) as error:  # what cannot be sent
            self._send("beat", **_error_report(error), count=count)


def _error_report(error: Exception) -> dict[str, Any]:
    return {"trouble": f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]}
