"""The loading pipeline on simulated time: how long a consumer waits for each batch.

The sizes of the pipeline are those of the run's own control law (`loading/control_law.py`), which
reads counters of simulated reads; a fixed pipeline has the sizes of the config.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paragan.loading.control_law import PERIOD_S, ControlLaw, Counters, Limits, Sizes
from paragan.scaling.cluster import Storage

_PARTS = 16  # reads of a batch
_MOST_READERS = 64
_MOST_TRACES = 16
_TRACE_BATCHES = 400


@dataclass(frozen=True)
class Loading:
    """Sizes of a pipeline. depth: batches ahead; 0: the consumer reads itself.

    is_controlled: `data.prefetch=auto`, which changes the sizes as it runs.
    """

    depth: int = 0
    readers: int = 1
    is_controlled: bool = False
    memory_bytes: int = 1 << 30


def simulate_waits(
    storage: Storage, loading: Loading, period_s: float, num_batches: int, batch_bytes: int, seed: int
) -> NDArray[np.float64]:
    """Return the seconds that a consumer waits for each batch. period_s: of its work on a batch."""
    return _Pipeline(storage, loading, batch_bytes, seed).run(period_s, num_batches)


def simulate_traces(
    storage: Storage | None, loading: Loading, period_s: float, num_ranks: int, batch_bytes: int, seed: int
) -> NDArray[np.float64] | None:
    """Return waits of some consumers, (traces, batches), which ranks share; None without a storage."""
    if storage is None:
        return None
    seeds = range(seed, seed + min(_MOST_TRACES, num_ranks))
    waits = [simulate_waits(storage, loading, period_s, _TRACE_BATCHES, batch_bytes, one) for one in seeds]
    return np.stack(waits)


class _Pipeline:
    """Reads of one worker: each thread takes the next part when it is free and the batch allowed."""

    def __init__(self, storage: Storage, loading: Loading, batch_bytes: int, seed: int) -> None:
        self._storage = storage
        self._batch_bytes = batch_bytes
        self._random = np.random.default_rng([seed, 2])
        sizes = Sizes(loading.depth, loading.readers, 1)
        self._law = ControlLaw(sizes) if loading.is_controlled else None
        self._limits = Limits(sizes, _MOST_READERS, 1, loading.memory_bytes)
        self._depth = loading.depth
        self._free = [0.0] * loading.readers
        self._taken: list[float] = []  # time at which each batch was taken
        self._ready: list[float] = []
        self._reads: list[tuple[float, float]] = []  # begin and end of those that have not ended
        self._num_reads = 0
        self._read_s = 0.0
        self._wait_s = 0.0
        self._decided_s = 0.0
        self._phase_ends_s = 0.0
        self._is_congested = True

    def run(self, period_s: float, num_batches: int) -> NDArray[np.float64]:
        """Take so many batches."""
        waits = np.zeros(num_batches)
        now = 0.0
        for number in range(num_batches):
            while len(self._ready) < number + max(1, self._depth):
                self._read_batch(now)
            waits[number] = max(0.0, self._ready[number] - now)
            self._wait_s += waits[number]
            now += waits[number]
            self._taken.append(now)
            now += period_s
            self._control(now)
        return waits

    def _read_batch(self, now: float) -> None:
        """Read the next batch: from the moment on at which it is allowed to be ahead."""
        number = len(self._ready)
        before = number - self._depth
        allowed_s = self._taken[before] if 0 <= before < len(self._taken) else 0.0
        allowed_s = max(allowed_s, now if before >= len(self._taken) else 0.0)
        ends = []
        for _ in range(_PARTS):
            begins = max(heapq.heappop(self._free), allowed_s)
            ends.append(begins + self._latency(begins))
            heapq.heappush(self._free, ends[-1])
            self._reads.append((begins, ends[-1]))
        self._ready.append(max(ends))

    def _latency(self, at_s: float) -> float:
        storage = self._storage
        while storage.congested and at_s >= self._phase_ends_s:
            self._is_congested = not self._is_congested
            share = storage.congested if self._is_congested else 1 - storage.congested
            self._phase_ends_s += self._random.exponential(2 * storage.congestion_s * share)
        slow = storage.congestion_factor if storage.congested and self._is_congested else 1.0
        return float(storage.read_s * slow * np.exp(storage.read_jitter * self._random.standard_normal()))

    def _control(self, now: float) -> None:
        """Let the control law decide, four times a second."""
        if self._law is None or now < self._decided_s + PERIOD_S:
            return
        self._decided_s = now
        ended = [(begin, end) for begin, end in self._reads if end <= now]
        self._reads = [(begin, end) for begin, end in self._reads if end > now]
        self._num_reads += len(ended)
        self._read_s += sum(end - begin for begin, end in ended)
        in_progress_s = sum(now - begin for begin, _ in self._reads if begin < now)
        held = self._batch_bytes * (len(self._ready) - len(self._taken))
        counters = Counters(
            now,
            len(self._taken),
            self._wait_s,
            self._num_reads,
            self._read_s + in_progress_s,
            parts_per_batch=_PARTS,
            batch_bytes=self._batch_bytes,
            bytes_held=held,
        )
        sizes = self._law.update(counters, self._limits).sizes
        self._depth = sizes.depth
        while len(self._free) < sizes.readers:
            heapq.heappush(self._free, now)
        while len(self._free) > sizes.readers:
            self._free.remove(max(self._free))
            heapq.heapify(self._free)
