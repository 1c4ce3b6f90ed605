"""Controller of a loading pipeline: a thread that resizes it by the control law."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from dataclasses import replace
from typing import Any, Protocol

from paragan.loading.control_law import PERIOD_S, ControlLaw, Counters, Decision, Limits
from paragan.loading.stage_size import Reason

_MAX_DECISIONS = 1000
_JOIN_S = 5.0


class Resizable(Protocol):
    """A pipeline as its controller sees it."""

    def resize(self, depth: int, readers: int, decoders: int) -> None:
        """Change the sizes, also while threads work."""

    def counters(self) -> Counters:
        """Return the sums since the start."""


class Controller:
    """Resize a pipeline four times a second, within limits. A deleted pipeline ends the thread."""

    def __init__(self, pipeline: Resizable, limits: Limits) -> None:
        self.newest: Decision | None = None
        self._changes: deque[Decision] = deque(maxlen=_MAX_DECISIONS)
        self._law = ControlLaw(limits.least)
        self._limits = limits
        self._pipeline = weakref.ref(pipeline)
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="loading controller", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def values(self, with_newest: bool) -> list[dict[str, Any]]:
        """Return the changes since the last call, oldest first, and what was measured last."""
        changes = [self._changes.popleft() for _ in range(len(self._changes))]
        newest = [replace(self.newest, reason=Reason.NONE)] if with_newest and self.newest else []
        return [decision_values(decision) for decision in changes + newest]

    def end(self) -> None:
        """End the thread."""
        self._is_ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    def _work(self) -> None:
        while not self._is_ended.wait(PERIOD_S):
            pipeline = self._pipeline()
            if pipeline is None:
                return
            self.update(pipeline)
            del pipeline  # so that it can be deleted

    def update(self, pipeline: Resizable) -> None:
        """Decide once, and resize the pipeline if anything changes."""
        self.newest = self._law.update(pipeline.counters(), self._limits)
        if self.newest.reason:
            sizes = self.newest.sizes
            pipeline.resize(sizes.depth, sizes.readers, sizes.decoders)
            self._changes.append(self.newest)


def decision_values(decision: Decision) -> dict[str, Any]:
    """Return a decision as values of an event."""
    return {
        "depth": decision.sizes.depth,
        "readers": decision.sizes.readers,
        "decoders": decision.sizes.decoders,
        "read_ms": round(1000 * decision.latency_s, 2),
        "decode_ms": round(1000 * decision.decode_s, 2),
        "stalls": round(decision.wait, 4),
    } | ({"reason": str(decision.reason)} if decision.reason else {})
