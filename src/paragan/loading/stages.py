"""Stages of loading: threads that read parts of batches, threads that decode them, and what they hold."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections import deque
from collections.abc import Callable

from torch import Tensor

from paragan.core.errors import DataError
from paragan.loading.batch_parts import BatchInWork, Part, sample_bytes as decoded_bytes
from paragan.loading.control_law import Counters
from paragan.loading.loader import Loader
from paragan.loading.stage_threads import LoadingStatistics, Operations, StageThreads

_POLL_S = 1.0  # the longest that an idle thread sleeps
_RECENT = 256


class Stages:
    """Threads that make the batches of a window of positions.

    The window has `depth` positions, from that of the consumer. Parts start in the order of the
    stream. One lock protects everything; no thread holds it while it reads, decodes or copies.

    max_parts: of a batch, at least 1. More threads than that work on more batches: parts that
    storage answers in parallel take as long as the whole batch. Data that needs no decoding is not
    divided.
    """

    def __init__(self, loader: Loader, max_parts: int, max_bytes: int | None) -> None:
        self._loader = loader
        self._max_parts = max_parts if loader.source.is_decoded else 1
        self._max_bytes = max_bytes
        self._lock = threading.RLock()  # re-entrant: operations count themselves under it, too
        self._is_ready = threading.Condition(self._lock)
        self._readers = StageThreads(name="reader", work=self._read_parts, wakeup=threading.Condition(self._lock))
        self._decoders = StageThreads(name="decoder", work=self._decode_parts, wakeup=threading.Condition(self._lock))
        self._window = range(0)
        self._depth = 0
        self._next = 0  # position before which every part has started
        self._batches: dict[int, BatchInWork] = {}
        self._encoded: list[Part] = []  # a heap
        self._bytes_held = 0
        self._largest_sample: int | None = None
        self._fetch_s: deque[float] = deque(maxlen=_RECENT)
        self._num_fetches = 0
        self._num_taken = 0
        self._waits = Operations(self._lock)
        self._reads = Operations(self._lock)
        self._decodes = Operations(self._lock)

    def take(self, position: int, timeout_s: float) -> dict[str, Tensor]:
        """Wait for the batch of this position and return it; the threads continue from there."""
        with self._lock:
            self._move_window(position)  # first: threads start no part that the consumer no longer wants
            with self._waits.running():
                is_done = self._is_ready.wait_for(lambda: self._is_done(position), timeout_s)
            if not is_done:
                raise DataError(
                    f"data: batch {position} was not read within {timeout_s:g} s; check the "
                    "storage of data.path, or increase train.timeout_s"
                )
            batch = self._batches[position]
            if batch.error is not None:
                self._drop(position)
                raise batch.error
            self._num_taken += 1
            return batch.tensors

    def has(self, position: int) -> bool:
        """Return whether `take` would return at once."""
        with self._lock:
            return position in self._window and self._is_done(position) and self._batches[position].error is None

    def resize(self, depth: int, readers: int, decoders: int) -> None:
        with self._lock:
            self._depth = depth
            self._readers.resize(readers)
            self._decoders.resize(decoders)

    def end(self) -> None:
        """Let the threads end, and drop all batches."""
        with self._lock:
            self._window = range(0)
            for position in list(self._batches):
                self._drop(position)
            self.resize(0, 0, 0)

    def join(self, timeout_s: float) -> None:
        for thread in (*self._readers.threads, *self._decoders.threads):
            thread.join(timeout_s)

    def statistics(self) -> LoadingStatistics:
        with self._lock:
            return LoadingStatistics(
                depth=self._depth,
                readers=self._readers.target,
                decoders=self._decoders.target,
                fetch_s=tuple(self._fetch_s),
                num_fetches=self._num_fetches,
                wait_s=self._waits.busy_s(),
                num_batches=self._num_taken,
                num_encoded=len(self._encoded),
                num_ready=sum(batch.num_left == 0 for batch in self._batches.values()),
                bytes_held=self._bytes_held,
                max_bytes=self._max_bytes,
            )

    def counters(self) -> Counters:
        with self._lock:
            num_rows = self._loader.num_rows
            part_rows = math.ceil(num_rows / self._max_parts)
            return Counters(
                time_s=time.monotonic(),
                num_taken=self._num_taken,
                wait_s=self._waits.busy_s(),
                num_reads=self._reads.num_completed,
                read_s=self._reads.busy_s(),
                num_decodes=self._decodes.num_completed,
                decode_s=self._decodes.busy_s(),
                parts_per_batch=math.ceil(num_rows / part_rows),
                batch_bytes=num_rows * ((self._largest_sample or 0) + 2 * decoded_bytes(self._loader.source)),
            )

    def _move_window(self, position: int) -> None:
        """Start at this position; batches after a depth that was reduced remain."""
        # one step ahead keeps the end of the window: a reduced depth must not drop what was read
        is_near = position in self._window or position == self._window.stop
        stop = max(position + self._depth, self._window.stop if is_near else 0)
        self._window = range(position, stop)
        for key in [key for key in self._batches if key not in self._window]:
            self._drop(key)
        self._next = position
        self._wake()

    def _wake(self) -> None:
        """Wake a thread that starts parts; each that finds one wakes another."""
        (self._readers if self._readers.target else self._decoders).wakeup.notify()

    def _wake_for_room(self) -> None:
        if self._max_bytes is not None:
            self._wake()

    def _is_done(self, position: int) -> bool:
        batch = self._batches.get(position)
        return batch is not None and (batch.num_left == 0 or batch.error is not None)

    def _drop(self, position: int) -> None:
        batch = self._batches.pop(position)
        batch.is_dropped = True
        self._bytes_held -= batch.num_bytes
        self._next = min(self._next, position)  # its parts start again if the consumer comes back

    def _read_parts(self) -> None:
        while (part := self._wait_for(self._readers, self._start_part)) is not None:
            if self._attempt(part, self._read, self._reads):
                with self._lock:
                    heapq.heappush(self._encoded, part)
                    self._decoders.wakeup.notify()

    def _decode_parts(self) -> None:
        while (part := self._wait_for(self._decoders, self._next_encoded)) is not None:
            if part.encoded is not None or self._attempt(part, self._read, self._reads):
                self._attempt(part, self._decode, self._decodes)

    def _wait_for(self, pool: StageThreads, find_part: Callable[[], Part | None]) -> Part | None:
        """Wait for work and return it; return None if this thread is superfluous."""
        with self._lock:
            while pool.num_alive <= pool.target:
                if (part := find_part()) is not None:
                    return part
                pool.wakeup.wait(_POLL_S)
            pool.num_alive -= 1
            return None

    def _attempt(self, part: Part, work: Callable[[Part], None], operations: Operations) -> bool:
        """Return whether the work succeeded; its error is raised by `take`."""
        try:
            with operations.running():
                work(part)
        except BaseException as error:
            with self._lock:
                self._bytes_held -= part.num_bytes
                part.batch.error = error
                self._is_ready.notify_all()
            return False
        return True

    def _next_encoded(self) -> Part | None:
        while self._encoded:
            part = heapq.heappop(self._encoded)
            if not part.batch.is_dropped:
                return part
            self._bytes_held -= part.num_bytes
        return None if self._readers.target else self._start_part()

    def _start_part(self) -> Part | None:
        """Start the next part of the window, if it fits into the memory."""
        first = self._window.start
        while first <= self._next < first + self._depth:
            position = self._next
            batch = self._batches.get(position)
            if batch is not None and not batch.has_parts:
                self._next += 1
                continue
            new = BatchInWork(self._loader, position, self._max_parts) if batch is None else batch
            sample_bytes = self._largest_sample or 0
            # a batch counts once, with its first part; a part counts by the largest sample until it is read
            needed = new.next_part_bytes(sample_bytes) + (new.num_bytes if batch is None else 0)
            # the batch that the consumer waits for is made whatever it needs, or a small limit would block forever
            if position != first and not self._has_room(needed):
                return None
            self._batches[position] = new
            self._bytes_held += needed
            self._wake()
            return new.start_part(sample_bytes)
        return None

    def _has_room(self, num_bytes: int) -> bool:
        if self._max_bytes is None:
            return True
        # before the first read no size is known: only the consumer's batch is read
        return self._largest_sample is not None and self._bytes_held + num_bytes <= self._max_bytes

    def _read(self, part: Part) -> None:
        began = time.perf_counter()
        encoded = self._loader.source.read(part.rows)
        seconds = time.perf_counter() - began
        with self._lock:
            self._fetch_s.append(seconds)
            self._num_fetches += 1
            self._largest_sample = max(self._largest_sample or 0, *map(len, encoded))
            self._bytes_held += part.set_encoded(encoded)  # what was counted becomes what was read
            self._wake_for_room()

    def _decode(self, part: Part) -> None:
        part.decode_into_batch()
        with self._lock:
            self._bytes_held -= part.num_bytes
            part.batch.num_left -= 1
            if part.batch.num_left == 0 and part.batch.position == self._window.start:
                self._is_ready.notify_all()
            self._wake_for_room()
