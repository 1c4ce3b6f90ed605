"""Prefetcher: threads that read and decode the next batches while the device computes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.types import Batch
from paragan.loading.loader import BatchStream, Loader

_POLL_S = 1.0  # the longest that an idle thread sleeps
_JOIN_S = 5.0

_Fetched = dict[str, Tensor] | BaseException


class Prefetcher(BatchStream):
    """Batches of a loader, fetched by threads at most `depth` batches ahead of the consumer.

    Batches and order are those of the loader: a batch depends on its position only. `position` is
    that of the next batch; setting it drops the batches fetched for other positions. An error of a
    fetch is raised at its batch; the next call fetches it again. The threads start at the first
    batch and end with `close`, or when the prefetcher is deleted.

    timeout_s: raises `DataError` if a batch takes longer.
    """

    def __init__(self, loader: Loader, depth: int, threads: int, timeout_s: float = 300.0) -> None:
        super().__init__(loader.source)
        self._loader = loader
        self._depth = depth
        self._threads = threads
        self._timeout_s = timeout_s
        self._stage: _Stage | None = None

    def fetch_next(self) -> dict[str, Tensor]:
        if self._stage is None:
            self._stage = _Stage(self._loader.fetch_pinned)
            self._end_stage = weakref.finalize(self, self._stage.end)
            self._stage.resize(self._depth, self._threads)
        return self._stage.take(self.position, self._timeout_s)

    def to_batch(self, tensors: dict[str, Tensor], position: int, num_streams: int = 1) -> Batch:
        return self._loader.to_batch(tensors, position, num_streams)

    def resize(self, depth: int, threads: int) -> None:
        """Change both limits, also during fetches; superfluous threads end after their batch."""
        self._depth = depth
        self._threads = threads
        if self._stage is not None:
            self._stage.resize(depth, threads)

    def close(self) -> None:
        """End the threads, or abandon them after a timeout; the next batch starts new ones."""
        if self._stage is not None:
            self._end_stage()
            self._stage.join(_JOIN_S)
            self._stage = None


class _Stage:
    """Threads and the batches that they have fetched, without a reference to the prefetcher."""

    def __init__(self, fetch: Callable[[int], dict[str, Tensor]]) -> None:
        self._fetch = fetch
        self._changed = threading.Condition()
        self._window = range(0)  # positions to fetch; the first is the consumer's
        self._depth = 0
        self._num_threads = 0  # as many as there should be
        self._num_alive = 0
        self._threads: list[threading.Thread] = []
        self._running: set[int] = set()
        self._fetched: dict[int, _Fetched] = {}

    def take(self, position: int, timeout_s: float) -> dict[str, Tensor]:
        """Wait for the batch of this position and return it; the threads continue from there."""
        with self._changed:
            self._window = range(position, position + self._depth)
            self._fetched = {key: found for key, found in self._fetched.items() if key in self._window}
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: position in self._fetched, timeout_s):
                raise DataError(
                    f"data: batch {position} was not read within {timeout_s:g} s; check the "
                    "storage of data.path, or increase train.timeout_s"
                )
            found = self._fetched[position]
            if isinstance(found, BaseException):
                del self._fetched[position]
                raise found
            return found

    def resize(self, depth: int, num_threads: int) -> None:
        with self._changed:
            self._depth = depth
            self._num_threads = num_threads
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            while self._num_alive < num_threads:
                thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
                self._threads.append(thread)
                self._num_alive += 1
                thread.start()
            self._changed.notify_all()

    def end(self) -> None:
        """Let the threads end, and drop the fetched batches."""
        with self._changed:
            self._num_threads = 0
            self._window = range(0)
            self._fetched.clear()
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        for thread in self._threads:
            thread.join(timeout_s)

    def _work(self) -> None:
        while (position := self._claim()) is not None:
            try:
                found: _Fetched = self._fetch(position)
            except BaseException as error:  # raised by `take`
                found = error
            with self._changed:
                self._running.remove(position)
                if position in self._window:
                    self._fetched[position] = found
                self._changed.notify_all()

    def _claim(self) -> int | None:
        """Wait for a position that no thread fetches; return None if this thread is superfluous."""
        with self._changed:
            while self._num_alive <= self._num_threads:
                missing = (p for p in self._window if p not in self._fetched and p not in self._running)
                if (position := next(missing, None)) is not None:
                    self._running.add(position)
                    return position
                self._changed.wait(_POLL_S)
            self._num_alive -= 1
            return None
