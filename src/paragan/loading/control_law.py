"""Control law of the loading pipeline: depth and threads from measured latency and demand.

Source: ParaGAN (arXiv 2411.03999), congestion-aware data pipeline. Its thresholds are not
published; law and constants are of this project (docs/design/019-controller.md).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from paragan.loading.stage_size import MAX_WINDOW_S, Reason, StageSize

PERIOD_S = 0.25  # between two decisions
DEMAND_COUNT = 8  # batches in a window of demand
DEMAND_WINDOW_S = 2.0  # the shortest
RESERVE_S = 2.0  # of batches ahead of the consumer: until more threads have brought the first ones
URGENT_STALL = 0.1  # share of the last second that the consumer waited
_MAX_DEMAND = 1e4  # batches per second, of a consumer that does nothing else


@dataclass(frozen=True)
class Sizes:
    """Sizes of the pipeline: batches ahead of the consumer, threads that read, that decode."""

    depth: int
    readers: int
    decoders: int


@dataclass(frozen=True)
class Limits:
    """Bounds of the sizes. min_sizes: while nothing is congested; the memory may require fewer, the
    demand a greater depth.

    memory_bytes: of all batches between storage and consumer.
    """

    min_sizes: Sizes
    max_readers: int
    max_decoders: int
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Sums over the life of a pipeline, at `time_s` of a monotonic clock.

    num_taken: batches that the consumer received. wait_s: seconds that it waited. num_reads,
    read_s: completed reads, and seconds of all reads. num_decodes, decode_s: the same of
    decodes. Seconds include what is in progress. parts_per_batch: reads, and decodes, of a batch.
    batch_bytes: host memory of a batch, at most.
    """

    time_s: float
    num_taken: int = 0
    wait_s: float = 0.0
    num_reads: int = 0
    read_s: float = 0.0
    num_decodes: int = 0
    decode_s: float = 0.0
    parts_per_batch: int = 1
    batch_bytes: int = 1


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Sizes from now on, why they changed, and what was measured.

    latency_s, decode_s: seconds of a read and of a decode. demand: batches per second that
    the consumer takes when it does not wait. wait: share of the time that it waited.
    """

    sizes: Sizes
    reason: Reason
    latency_s: float
    decode_s: float
    demand: float
    wait: float


class ControlLaw:
    """Sizes of a pipeline by its counters: no clock, no threads, the same result every time."""

    def __init__(self, min_sizes: Sizes) -> None:
        self.sizes = min_sizes
        self._readers = StageSize(min_sizes.readers)
        self._decoders = StageSize(min_sizes.decoders)
        self._history: deque[Counters] = deque()
        self._demand = 0.0
        self._reserve = 0

    def update(self, now: Counters, limits: Limits) -> Decision:
        """Return the decision at `now.time_s`, which is later than that of the last call."""
        self._history.append(now)
        while self._history[0].time_s < now.time_s - MAX_WINDOW_S:
            self._history.popleft()
        wait = self._measure_demand(now)
        has_stalls = self._has_stalls(now)
        operations = self._demand * now.parts_per_batch
        # memory is the one hard limit: it bounds the depth, and threads that more parts than fit would keep busy
        max_depth = max(1, limits.memory_bytes // now.batch_bytes)
        readers = min(limits.max_readers, max_depth * now.parts_per_batch)
        decoders = min(limits.max_decoders, max_depth * now.parts_per_batch)
        reads = self._readers.meter.update(now.time_s, now.num_reads, now.read_s, operations, has_stalls)
        decodes = self._decoders.meter.update(now.time_s, now.num_decodes, now.decode_s, operations, has_stalls)
        reasons = [
            self._readers.update(reads, min(limits.min_sizes.readers, readers), readers),
            self._decoders.update(decodes, min(limits.min_sizes.decoders, decoders), decoders),
        ]
        # two reads per thread: one that runs, one that is ready; and the batch of the consumer
        depth = limits.min_sizes.depth
        if self._readers.size > limits.min_sizes.readers:
            depth = max(depth, math.ceil(2 * self._readers.size / now.parts_per_batch) + 1)
        if now.num_taken >= DEMAND_COUNT and self._update_reserve():
            reasons.append(Reason.RESERVE)
        sizes = Sizes(min(max(depth, self._reserve), max_depth), self._readers.size, self._decoders.size)
        if sizes != self.sizes:
            reasons.append(Reason.LIMIT)
        self.sizes = sizes
        return Decision(
            sizes=sizes,
            reason=next(filter(None, reasons), Reason.NONE),
            latency_s=reads.latency_s,
            decode_s=decodes.latency_s,
            demand=self._demand,
            wait=wait,
        )

    def _update_reserve(self) -> bool:
        """Return whether the demand has left the range of the present reserve."""
        needed = self._demand * RESERVE_S
        if self._reserve / 2 <= needed <= self._reserve:
            return False
        self._reserve = math.ceil(1.25 * needed)  # above what is needed, so that noise does not leave the range
        return True

    def _has_stalls(self, now: Counters) -> bool:
        """Return whether the consumer waited for a tenth of the last second."""
        recent = next((past for past in reversed(self._history) if now.time_s - past.time_s >= 1), now)
        return now.wait_s - recent.wait_s > URGENT_STALL * (now.time_s - recent.time_s)

    def _measure_demand(self, now: Counters) -> float:
        """Update the demand and return the share of time waited; without batches it is unchanged."""
        windows = (past for past in reversed(self._history) if now.time_s - past.time_s >= DEMAND_WINDOW_S)
        start = next((past for past in windows if now.num_taken - past.num_taken >= DEMAND_COUNT), self._history[0])
        elapsed_s = now.time_s - start.time_s
        wait_s = now.wait_s - start.wait_s
        if now.num_taken > start.num_taken:
            busy_s = max(elapsed_s - wait_s, 0.0)
            taken = now.num_taken - start.num_taken
            self._demand = min(taken / busy_s, _MAX_DEMAND) if busy_s else _MAX_DEMAND
        return wait_s / elapsed_s if elapsed_s else 0.0
