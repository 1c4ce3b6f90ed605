"""Threads that wait for responses, shared by all reads of a store."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

_IDLE_S = 10.0  # after which a thread ends


class RequestPool:
    """Runs calls in daemon threads, at most `limit` at once, in the order of `submit`.

    Threads start when they are needed and end when idle. A forked process begins without calls and
    threads.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._calls: deque[Callable[[], None]] = deque()
        self._num_threads = 0
        self._num_idle = 0

    def submit(self, call: Callable[[], None]) -> None:
        """Run a call, which must not raise, as soon as a thread is free."""
        if self._process != os.getpid():
            RequestPool.__init__(self, self._limit)  # locks and threads are those of the parent
        with self._changed:
            self._calls.append(call)
            if self._num_idle >= len(self._calls):
                self._changed.notify()
            elif self._num_threads < self._limit:
                self._num_threads += 1
                threading.Thread(target=self._work, name="request", daemon=True).start()

    def _work(self) -> None:
        while (call := self._next_call()) is not None:
            call()

    def _next_call(self) -> Callable[[], None] | None:
        with self._changed:
            self._num_idle += 1
            self._changed.wait_for(lambda: self._calls, _IDLE_S)
            self._num_idle -= 1
            if self._calls:
                return self._calls.popleft()
            self._num_threads -= 1
            return None
