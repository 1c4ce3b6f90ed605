"""Heartbeats: a worker reports its state from a separate thread, also while it does not train; and their absence.

A silence is suspect when it is longer than all recent gaps, and a failure when it is four times the longest of them.
The phi accrual detector (Hayashibara et al. 2004) adapts similarly, by the quantile of a normal distribution. Delays on
a busy machine come in bursts and have a long tail, where that quantile is exceeded several times as often.

Silence is measured while the caller looks: a gap of more than one heartbeat between two looks counts as one heartbeat,
so that a coordinator that was suspended does not blame its workers, and a slow one still finds those that have failed.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from paragan.core.errors import RankError

_SUSPECT_BEATS = 2  # least silence, in heartbeats, for suspicion
_FAIL_BEATS = 10  # and for failure, after which the others repeat a generation
_FAIL_GAPS = 4  # the same, in longest recent gaps
_WINDOW = 200  # gaps that count as recent


class WorkerState(Enum):
    """State of a worker. Finished: its results wait to be gathered. Failed: permanently."""

    INACTIVE = "inactive"
    PROCESSING = "processing"
    FINISHED = "finished"
    FAILED = "failed"


class WorkerStatus:
    """What the heartbeats of a worker report: `PeriodicHeartbeat(connection.send, every_s, status)`.

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


def silence_limits(gaps_s: Iterable[float], heartbeat_s: float, timeout_s: float) -> tuple[float, float]:
    """Return the seconds of silence after which a process is suspect, and after which it has failed.

    gaps_s: between its recent arrivals; none: it sends heartbeats in time. Ten heartbeats <= failure
    <= timeout_s; suspicion <= failure.
    """
    longest_s = max([heartbeat_s, *gaps_s])
    fail_s = min(max(_FAIL_GAPS * longest_s, _FAIL_BEATS * heartbeat_s), timeout_s)
    return min(max(longest_s, _SUSPECT_BEATS * heartbeat_s), fail_s), fail_s


@dataclass(frozen=True)
class Silence:
    """Silence of a process. seconds: since its last arrival; over fail_after_s it is a failure."""

    seconds: float
    fail_after_s: float

    @property
    def is_failure(self) -> bool:
        """Whether the silence is longer than its limit."""
        return self.seconds > self.fail_after_s


class FailureDetector:
    """Detector of silent processes. `now` is always `time.monotonic()` of the caller.

    Record arrivals first, then call `suspects`, several times a heartbeat.
    """

    def __init__(self, heartbeat_s: float, timeout_s: float) -> None:
        self.heartbeat_s = heartbeat_s
        self.timeout_s = timeout_s
        self._gaps: dict[str, deque[float]] = {}  # between arrivals, by name
        self._arrived: dict[str, float] = {}  # newest arrival by name, in seconds of `_clock`
        self._clock = 0.0  # observed seconds, see `_advance`
        self._observed_at: float | None = None

    def record_arrival(self, name: str, now: float) -> None:
        """Record a message of any kind. The first starts the monitoring of its sender."""
        self._advance(now)
        gaps = self._gaps.setdefault(name, deque(maxlen=_WINDOW))
        if name in self._arrived:
            gaps.append(self._clock - self._arrived[name])
        self._arrived[name] = self._clock

    def forget(self, name: str) -> None:
        """Stop monitoring a process that has left or failed."""
        self._arrived.pop(name, None)
        self._gaps.pop(name, None)

    def suspects(self, now: float) -> dict[str, Silence]:
        """Return the processes that are silent for longer than usual."""
        self._advance(now)
        silences = {}
        for name, arrived in self._arrived.items():
            suspect_s, fail_s = silence_limits(self._gaps[name], self.heartbeat_s, self.timeout_s)
            if self._clock - arrived > suspect_s:
                silences[name] = Silence(self._clock - arrived, fail_s)
        return silences

    def _advance(self, now: float) -> None:
        # a suspended coordinator observes nothing: one heartbeat at most passes between two calls
        if self._observed_at is not None:
            self._clock += min(now - self._observed_at, self.heartbeat_s)
        self._observed_at = now
