"""Heartbeats: a worker reports its state from a separate thread, also while it does not train."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from paragan.core.errors import RankError


class WorkerState(Enum):
    """State of a worker. Finished: its results wait to be gathered. Failed: permanently."""

    INACTIVE = "inactive"
    PROCESSING = "processing"
    FINISHED = "finished"
    FAILED = "failed"


class WorkerStatus:
    """What the heartbeats of a worker report: `PeriodicHeartbeat(line.send, every_s, status)`.

    progress: a count of steps: a worker can be alive without making any. One thread changes both.
    """

    def __init__(self) -> None:
        self.state = WorkerState.INACTIVE
        self.progress = 0

    def __call__(self) -> dict[str, Any]:
        return {"state": self.state.value, "progress": self.progress}


class PeriodicHeartbeat:
    """Sender of heartbeats with the values of `status()`, at once and every `every_s` seconds.

    send: as `ControlConnection.send`. Heartbeats end with the connection.
    """

    def __init__(self, send: Callable[..., None], every_s: float, status: Callable[[], Mapping[str, Any]]) -> None:
        self._send = send
        self._every_s = every_s
        self._status = status
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeats")
        self._thread.start()

    def close(self, wait_s: float = 15.0) -> None:
        """Stop sending heartbeats, after the current one. The connection stays open."""
        self._over.set()
        self._thread.join(wait_s)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._send("beat", **self._status())
            except RankError:  # the user of the connection reports why it has ended
                return
            self._over.wait(self._every_s)
