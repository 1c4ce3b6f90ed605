"""Control law of the loading pipeline: depth and threads from measured latency and demand.

Source: ParaGAN (arXiv 2411.03999), congestion-aware data pipeline. Its thresholds are not
published; law and constants are of this project (docs/internals/design/019-controller.md).
"""

import math
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

PERIOD_S = 0.25  # between two decisions
DEMAND_COUNT = 8  # batches in a window of demand
DEMAND_WINDOW_S = 2.0  # the shortest
RESERVE_S = 2.0  # of batches ahead of the consumer: until more threads have brought the first ones
MIN_COUNT = 48  # operations in the window of the latency
MIN_WINDOW_S = 0.5
MAX_SURGE_S = 2.0  # the longest window of a surge
HOLD_S = 3.0  # the window over which the need must be low before threads are given back
MAX_WINDOW_S = 10.0
TARGET = 0.6  # utilisation after a change
GROW_ABOVE = 0.9  # utilisation
SHRINK_BELOW = 0.4  # utilisation
MAX_GROWTH = 4  # factor of one change
COOLDOWN_S = 0.5  # between two changes upwards
_MAX_DEMAND = 1e4  # batches per second, of a consumer that does nothing else


class Sizes(NamedTuple):
    """Sizes of the pipeline: batches ahead of the consumer, threads that read, that decode."""

    depth: int
    readers: int
    decoders: int


@dataclass(frozen=True, kw_only=True)
class LoadingStatistics:
    """Limits and measurements of a pipeline at `time_s` of a monotonic clock; counts and sums are since its start.

    num_batches: those that the consumer took; wait_s: seconds that it waited for them. num_fetches,
    num_decodes: reads and decodes of parts of batches that have ended; read_s, decode_s: their
    seconds, also of those in progress. parts_per_batch: the parts that a batch is divided into. num_encoded:
    parts that are read and wait to be decoded. num_ready: finished batches. bytes_held: of both, and of
    what is in work. batch_bytes: host memory of a batch, at most.
    """

    depth: int = 0
    readers: int = 0
    decoders: int = 0
    max_bytes: int | None = None
    time_s: float = 0.0
    num_batches: int = 0
    wait_s: float = 0.0
    num_fetches: int = 0
    read_s: float = 0.0
    num_decodes: int = 0
    decode_s: float = 0.0
    parts_per_batch: int = 1
    num_encoded: int = 0
    num_ready: int = 0
    bytes_held: int = 0
    batch_bytes: int = 1


class Reason(StrEnum):
    """Why a stage changed its size."""

    NONE = ""
    CONGESTION = "congestion"
    CALM = "congestion has passed"
    RESERVE = "training takes batches at another rate"
    LIMIT = "limit of threads or memory"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Sizes from now on, why they changed, and what was measured.

    read_s, decode_s: seconds of a read and of a decode. wait: share of the time that the consumer waited.
    """

    sizes: Sizes
    reason: Reason
    read_s: float
    decode_s: float
    wait: float

    @property
    def values(self) -> dict[str, Any]:
        """The decision as values of an event."""
        return {
            **self.sizes._asdict(),
            "read_ms": round(1000 * self.read_s, 2),
            "decode_ms": round(1000 * self.decode_s, 2),
            "stalls": round(self.wait, 4),
        } | ({"reason": str(self.reason)} if self.reason else {})


class ControlLaw:
    """Sizes of a pipeline by its statistics: no clock, no threads, the same result every time.

    min_sizes: while nothing is congested; the memory may require fewer, the demand a greater depth.
    memory_bytes: of all batches between storage and consumer.
    """

    def __init__(self, min_sizes: Sizes, *, max_readers: int, max_decoders: int, memory_bytes: int) -> None:
        self.sizes = min_sizes
        self._min_sizes = min_sizes
        self._max_threads = (max_readers, max_decoders)
        self._memory_bytes = memory_bytes
        self._readers = _StageSize(min_sizes.readers)
        self._decoders = _StageSize(min_sizes.decoders)
        self._history: deque[LoadingStatistics] = deque()
        self._demand = 0.0  # batches per second that the consumer takes when it does not wait
        self._reserve = 0

    def update(self, now: LoadingStatistics) -> Decision:
        """Return the decision at `now.time_s`, which is later than that of the last call."""
        self._history.append(now)
        while self._history[0].time_s < now.time_s - MAX_WINDOW_S:
            self._history.popleft()
        wait = self._measure_demand(now)
        # memory is the one hard limit: it bounds the depth, and threads that more parts than fit would keep busy
        max_depth = max(1, self._memory_bytes // now.batch_bytes)
        reasons = self._update_threads(now, max_depth * now.parts_per_batch)
        # two reads per thread: one that runs, one that is ready; and the batch of the consumer
        depth = self._min_sizes.depth
        if self._readers.size > self._min_sizes.readers:  # without congestion the depth of the settings is enough
            depth = max(depth, math.ceil(2 * self._readers.size / now.parts_per_batch) + 1)
        if now.num_batches >= DEMAND_COUNT and self._update_reserve():
            reasons.append(Reason.RESERVE)
        sizes = Sizes(min(max(depth, self._reserve), max_depth), self._readers.size, self._decoders.size)
        if sizes != self.sizes:
            reasons.append(Reason.LIMIT)
        self.sizes = sizes
        return Decision(
            sizes=sizes,
            reason=next(filter(None, reasons), Reason.NONE),
            read_s=self._readers.latency_s,
            decode_s=self._decoders.latency_s,
            wait=wait,
        )

    def _update_threads(self, now: LoadingStatistics, max_parts: int) -> list[Reason]:
        """Change the threads of both stages, none of which has more than `max_parts`; return why."""
        operations = self._demand * now.parts_per_batch
        readers, decoders = (min(num, max_parts) for num in self._max_threads)
        reads = _Sums(now.time_s, now.num_fetches, now.read_s)
        decodes = _Sums(now.time_s, now.num_decodes, now.decode_s)
        return [
            self._readers.update(reads, operations, (min(self._min_sizes.readers, readers), readers)),
            self._decoders.update(decodes, operations, (min(self._min_sizes.decoders, decoders), decoders)),
        ]

    def _update_reserve(self) -> bool:
        """Return whether the demand has left the range of the present reserve."""
        needed = self._demand * RESERVE_S
        if self._reserve / 2 <= needed <= self._reserve:
            return False
        self._reserve = math.ceil(1.25 * needed)  # above what is needed, so that noise does not leave the range
        return True

    def _measure_demand(self, now: LoadingStatistics) -> float:
        """Update the demand and return the share of time waited; without batches it is unchanged."""
        windows = (past for past in reversed(self._history) if now.time_s - past.time_s >= DEMAND_WINDOW_S)
        enough = (past for past in windows if now.num_batches - past.num_batches >= DEMAND_COUNT)
        start = next(enough, self._history[0])  # the shortest window that is long enough follows a change soonest
        elapsed_s = now.time_s - start.time_s
        wait_s = now.wait_s - start.wait_s
        if now.num_batches > start.num_batches:
            # without the waits: the demand is what the consumer would take, or slow storage would seem to be enough
            busy_s = max(elapsed_s - wait_s, 0.0)
            taken = now.num_batches - start.num_batches
            self._demand = min(taken / busy_s, _MAX_DEMAND) if busy_s else _MAX_DEMAND
        return wait_s / elapsed_s if elapsed_s else 0.0


class _Sums(NamedTuple):
    time_s: float
    completed: int
    busy_s: float


class _StageSize:
    """Threads of one stage: grow at once to what is needed, give back after `HOLD_S`.

    Seconds of all operations over the last 10 s, also of those in progress, divided by completed operations
    is the mean latency (Little's law); late operations raise it before they complete.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.latency_s = 0.0
        self._history: deque[_Sums] = deque()
        self._grown_at = -math.inf

    def update(self, now: _Sums, demand: float, limits: tuple[int, int]) -> Reason:
        """Change `size` within both limits by the sums at a time, and return why; not within the dead band.

        demand: operations per second.
        """
        windows = self._measure(now)
        min_size, max_size = limits
        if not min_size <= self.size <= max_size:  # the limit of memory changes with the size of a batch
            self.size = min(max(self.size, min_size), max_size)
            return Reason.LIMIT
        need = demand * self.latency_s  # threads that are busy at once, by Little's law
        # a window counts with its lower bound, so that one slow read of few starts no threads
        surges = [_surge(past, now) for past in windows if now.time_s - past.time_s <= MAX_SURGE_S]
        bound_s, surge_s = max(surges, default=(0.0, 0.0))
        if demand * bound_s > max(need, GROW_ABOVE * self.size):
            need = demand * surge_s
        if need > GROW_ABOVE * self.size and self.size < max_size:
            if now.time_s - self._grown_at < COOLDOWN_S:
                return Reason.NONE
            self._grown_at = now.time_s
            # to 0.6, between both thresholds: noise of the latency neither grows nor shrinks it again
            self.size = min(math.ceil(need / TARGET), MAX_GROWTH * self.size, max_size)
            return Reason.CONGESTION
        return self._shrink(windows, now, demand, min_size)

    def _measure(self, now: _Sums) -> list[_Sums]:
        """Add the sums, update the latency, and return the starts of all windows, the newest first."""
        self._history.append(now)
        while self._history[0].time_s < now.time_s - MAX_WINDOW_S:
            self._history.popleft()
        windows = [past for past in reversed(self._history) if now.time_s - past.time_s >= MIN_WINDOW_S]
        start = next((past for past in windows if now.completed - past.completed >= MIN_COUNT), self._history[0])
        if now.completed > start.completed:
            self.latency_s = (now.busy_s - start.busy_s) / (now.completed - start.completed)
        return windows

    def _shrink(self, windows: list[_Sums], now: _Sums, demand: float, min_size: int) -> Reason:
        """Give threads back if an upper bound of the need over `HOLD_S` is low."""
        start = next((past for past in windows if now.time_s - past.time_s >= HOLD_S), None)
        # not sooner than that window is long: it would still hold the surge
        if start is None or now.time_s - self._grown_at < HOLD_S or self.size == min_size:
            return Reason.NONE
        # without a completed operation the window has no bound of its own, and the last latency counts
        latency_s = 0 if now.completed > start.completed else self.latency_s
        bound = demand * max(latency_s, _calm(start, now))
        if bound > max(TARGET * min_size, SHRINK_BELOW * self.size):
            return Reason.NONE
        while self._history[0].time_s < now.time_s - HOLD_S:  # or the passed surge would let the stage grow again
            self._history.popleft()
        self.size = max(min_size, math.ceil(bound / TARGET))
        return Reason.CALM


def _surge(start: _Sums, now: _Sums) -> tuple[float, float]:
    """Return a lower bound of the latency over a window, and the latency.

    The bound is three standard deviations of a Poisson process below; those of log-normal latencies are smaller.
    """
    busy_s = now.busy_s - start.busy_s
    count = now.completed - start.completed
    return busy_s / (count + 3 * math.sqrt(count + 1)), busy_s / max(count, 1)


def _calm(start: _Sums, now: _Sums) -> float:
    """Return an upper bound of the latency over a window: two standard deviations of a Poisson process."""
    count = now.completed - start.completed
    return (now.busy_s - start.busy_s) / max(count - 2 * math.sqrt(count), 0.5)
