"""Latency of recent requests, and the decision to send one a second time."""

from __future__ import annotations

import threading
from collections import deque

_NUM_RECENT = 256
_MIN_RECENT = 20
_QUANTILE = 0.95
_HEDGES_PER_REQUEST = 0.1
_MAX_SAVED_HEDGES = 10.0


class RequestLatency:
    """Seconds of the last 256 requests; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: deque[float] = deque(maxlen=_NUM_RECENT)
        self._hedges = _MAX_SAVED_HEDGES  # that may be sent now

    def add(self, seconds: float) -> None:
        """Record a request; each permits a tenth of a hedge."""
        with self._lock:
            self._recent.append(seconds)
            self._hedges = min(self._hedges + _HEDGES_PER_REQUEST, _MAX_SAVED_HEDGES)

    def hedge_after_s(self) -> float | None:
        """Return the 95th percentile; None after fewer than 20 requests."""
        with self._lock:
            recent = sorted(self._recent)
        return recent[int(_QUANTILE * len(recent))] if len(recent) >= _MIN_RECENT else None

    def take_hedge(self) -> bool:
        """Return whether another hedge may be sent, and count it."""
        with self._lock:
            if self._hedges < 1:
                return False
            self._hedges -= 1
            return True
