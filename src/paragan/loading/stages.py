"""Threads that make batches ahead of a consumer: each reads a part of a batch from storage, then decodes it."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from paragan.core.errors import DataError
from paragan.loading.control_law import LoadingStatistics, Sizes
from paragan.loading.loader import Loader

_POLL_S = 1.0  # the longest that an idle thread sleeps


class Stages:
    """Threads that make the batches of a window of positions.

    The window has `depth` positions, from that of the consumer. Parts of batches start in the order of the stream. As
    many threads read at a time as there are readers, and as many decode as there are decoders; without readers, the
    threads are the decoders. One lock protects everything; no thread holds it while it reads, decodes or copies.
    The consumer waits on `_is_ready`; threads wait on `_reads.changed` for a part, then on `_decodes.changed`.

    max_parts: of a batch, at least 1. With 2, 6 threads work on 3 batches: storage that answers in parallel takes as
    long for a part as for a batch, so more parts gain nothing. Data that is not `is_decoded` is not divided.
    """

    def __init__(self, loader: Loader, max_parts: int, max_bytes: int | None) -> None:
        self._loader = loader
        self._part_rows = math.ceil(loader.rows.count / (max_parts if loader.source.is_decoded else 1))
        self._max_bytes = max_bytes
        self._ready_bytes = loader.rows.count * sum(spec.num_bytes for spec in loader.source.tensors.values())
        # re-entrant: the garbage collector may call `end` in a thread that holds it
        self._lock = threading.RLock()
        self._is_ready = threading.Condition(self._lock)  # the batch of the consumer, or the end
        self._is_ended = False
        self._threads: list[threading.Thread] = []
        self._num_threads = 0  # that have not ended
        self._sizes = Sizes(depth=0, readers=0, decoders=0)
        self._window = range(0)
        self._next = 0  # position before which every part has started
        self._batches: dict[int, _BatchInWork] = {}
        self._num_encoded = 0
        self._largest_sample: int | None = None
        self._num_taken = 0
        self._waits = _Operations(self._lock)  # of the consumer: for their seconds only, nothing limits them
        self._reads = _Operations(self._lock)
        self._decodes = _Operations(self._lock)

    def take(self, position: int, timeout_s: float) -> dict[str, Tensor]:
        """Wait for the batch of this position and return it; the threads continue from there."""
        with self._lock:
            self._move_window(position)  # first: threads start no part that the consumer no longer wants
            self._waits.add(1)
            try:
                is_done = self._is_ready.wait_for(lambda: self._is_done(position), timeout_s)
            finally:  # also of Ctrl-C, after which the loop may continue
                self._waits.add(-1)
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

    def resize(self, sizes: Sizes) -> None:
        """Start threads that are missing; superfluous ones end after their part."""
        with self._lock:
            if self._is_ended:
                return
            self._sizes = sizes
            self._reads.limit = sizes.readers or sizes.decoders
            self._decodes.limit = sizes.decoders
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            while self._num_threads < sizes.readers + sizes.decoders:
                self._threads.append(threading.Thread(target=self._work, name="loading", daemon=True))
                self._num_threads += 1
                self._threads[-1].start()
            self._reads.changed.notify_all()
            self._decodes.changed.notify_all()

    def end(self) -> None:
        """Let the threads end, and drop all batches. Called by the consumer, or by the garbage collector after it."""
        with self._lock:
            self._window = range(0)
            for position in list(self._batches):
                self._drop(position)
            self.resize(Sizes(depth=0, readers=0, decoders=0))
            self._is_ended = True
            self._is_ready.notify_all()

    def wait_for_end(self, timeout_s: float) -> bool:
        """Wait for `end`, and return whether it was called."""
        with self._lock:
            return self._is_ready.wait_for(lambda: self._is_ended, timeout_s)

    def join(self, timeout_s: float) -> None:
        for thread in self._threads:
            thread.join(timeout_s)

    def statistics(self) -> LoadingStatistics:
        with self._lock:
            return LoadingStatistics(
                **self._sizes._asdict(),
                max_bytes=self._max_bytes,
                time_s=time.monotonic(),
                num_batches=self._num_taken,
                wait_s=self._waits.busy_s(),
                num_fetches=self._reads.num_completed,
                read_s=self._reads.busy_s(),
                num_decodes=self._decodes.num_completed,
                decode_s=self._decodes.busy_s(),
                parts_per_batch=math.ceil(self._loader.rows.count / self._part_rows),
                num_encoded=self._num_encoded,
                num_ready=sum(batch.num_left == 0 for batch in self._batches.values()),
                bytes_held=self._bytes_held(),
                batch_bytes=self._bytes_in_work(),
            )

    def _move_window(self, position: int) -> None:
        """Start at this position; batches after a depth that was reduced remain."""
        # one step ahead keeps the end of the window: a reduced depth must not drop what was read
        is_near = position in self._window or position == self._window.stop
        stop = max(position + self._sizes.depth, self._window.stop if is_near else 0)
        self._window = range(position, stop)
        for key in [key for key in self._batches if key not in self._window]:
            self._drop(key)
        self._next = position  # also where it was further: batches that are made are passed over by `_start_part`
        self._reads.changed.notify()

    def _is_done(self, position: int) -> bool:
        batch = self._batches.get(position)
        return batch is not None and (batch.num_left == 0 or batch.error is not None)

    def _drop(self, position: int) -> None:
        self._batches.pop(position).is_dropped = True
        self._next = min(self._next, position)  # its parts start again if the consumer comes back
        self._decodes.changed.notify_all()  # threads that wait to decode a part of it

    def _work(self) -> None:
        """Make parts until this thread is superfluous."""
        while (part := self._next_part()) is not None:
            batch, rows = part
            try:
                self._make(batch, rows)
            except BaseException as error:
                batch.error = error  # `take` raises it
            with self._lock:
                batch.num_left -= 1
                if self._is_done(self._window.start):
                    self._is_ready.notify_all()
                self._reads.changed.notify()  # there is room for another part

    def _next_part(self) -> tuple[_BatchInWork, slice] | None:
        """Wait for a part that may be read, and start it; None if this thread is superfluous."""
        with self._lock:
            while self._num_threads <= self._sizes.readers + self._sizes.decoders:
                if self._reads.has_free and (part := self._start_part()) is not None:
                    self._reads.add(1)  # wakes another thread, which starts the next part
                    return part
                self._reads.changed.wait(_POLL_S)
            self._num_threads -= 1
            return None

    def _start_part(self) -> tuple[_BatchInWork, slice] | None:
        """Return the next part of the window, if its batch fits into the memory."""
        first = self._window.start
        while self._next < first + self._sizes.depth:
            batch = self._batches.get(self._next)
            if batch is None:
                # the batch that the consumer waits for is made whatever it needs, or a small limit would block forever
                if self._next != first and not self._has_room():
                    return None
                batch = self._batches[self._next] = _BatchInWork(self._loader, self._next, self._part_rows)
            if batch.parts:
                return batch, batch.parts.popleft()
            self._next += 1
        return None

    def _has_room(self) -> bool:
        """Return whether another batch fits; before the first read no size is known, and none does."""
        if self._max_bytes is None:
            return True
        return self._largest_sample is not None and self._bytes_held() + self._bytes_in_work() <= self._max_bytes

    def _bytes_held(self) -> int:
        in_work = self._bytes_in_work()
        return sum(in_work if batch.num_left else self._ready_bytes for batch in self._batches.values())

    def _bytes_in_work(self) -> int:
        """Return the memory of a batch in work: encoded samples, and decoded ones twice while they are copied."""
        return self._loader.rows.count * (self._largest_sample or 0) + 2 * self._ready_bytes

    def _make(self, batch: _BatchInWork, rows: slice) -> None:
        """Read and decode a part."""
        try:
            encoded = self._loader.source.read(batch.rows[rows])
        finally:  # before it waits to decode: another thread may read meanwhile, which is what readers are for
            with self._lock:
                self._reads.add(-1)
        with self._lock:
            self._largest_sample = max(self._largest_sample or 0, *map(len, encoded))  # no mean: it is for a limit
            self._num_encoded += 1
            while not self._decodes.has_free and not batch.is_dropped:
                self._decodes.changed.wait(_POLL_S)
            self._num_encoded -= 1
            if batch.is_dropped:
                return
            self._decodes.add(1)
        try:
            batch.put(rows, self._loader.decode(encoded, batch.rows[rows], batch.places[rows]))
        finally:
            with self._lock:
                self._decodes.add(-1)


class _Operations:
    """Operations, `limit` of them at a time: how many have completed, and their seconds. The caller has the lock."""

    def __init__(self, lock: threading.RLock) -> None:
        self.limit = 0
        self.num_completed = 0
        self.changed = threading.Condition(lock)
        self._num_running = 0
        self._busy_s = 0.0
        self._changed_s = time.monotonic()

    @property
    def has_free(self) -> bool:
        """Whether another one may begin."""
        return self._num_running < self.limit

    def add(self, difference: int) -> None:
        """Count one that begins, or ends."""
        self._busy_s = self.busy_s()  # grows while an operation is late, not only when it completes
        self._changed_s = time.monotonic()
        self._num_running += difference
        self.num_completed += difference < 0
        self.changed.notify()

    def busy_s(self) -> float:
        """Return the seconds of all operations, also of those that run."""
        return self._busy_s + self._num_running * (time.monotonic() - self._changed_s)


class _BatchInWork:
    """A batch whose parts are made in any order.

    parts: rows of those that have not started. num_left: of those that are not decoded. is_dropped: no longer wanted.
    """

    def __init__(self, loader: Loader, position: int, part_rows: int) -> None:
        self.rows, self.places = loader.rows_at(position)
        self.parts = deque(slice(first, first + part_rows) for first in range(0, len(self.rows), part_rows))
        self.num_left = len(self.parts)
        self.tensors: dict[str, Tensor] = {}
        self.error: BaseException | None = None
        self.is_dropped = False
        self._is_pinned = loader.is_pinned
        self._is_copied = self.num_left > 1 or loader.is_pinned  # else the one part is the batch
        self._lock = threading.Lock()

    def put(self, rows: slice, tensors: Mapping[str, Tensor]) -> None:
        """Copy decoded samples to their rows."""
        if not self._is_copied:
            self.tensors = dict(tensors)
            return
        with self._lock:  # for the allocation alone: parts have rows of their own, and are copied at the same time
            if not self.tensors:
                self.tensors = {name: self._allocate(tensor) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            copy_bytes(tensor, self.tensors[name][rows])

    def _allocate(self, part: Tensor) -> Tensor:
        return torch.empty((len(self.rows), *part.shape[1:]), dtype=part.dtype, pin_memory=self._is_pinned)


def copy_bytes(source: Tensor, target: Tensor) -> None:
    """Copy to a contiguous tensor of the same type and shape.

    `Tensor.copy_` would start a pool of native threads for each Python thread that calls it.
    """
    to_bytes, from_bytes = (tensor.view(-1).view(torch.uint8).numpy() for tensor in (target, source.contiguous()))
    np.copyto(to_bytes, from_bytes)
