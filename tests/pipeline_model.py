"""Model of a loading pipeline on simulated time: reads, ordered batches, a consumer with a fixed step time."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from paragan.loading.control_law import PERIOD_S, ControlLaw, Decision, LoadingStatistics, Sizes

Latency = Callable[[float, random.Random, int], float]  # (time, random, reads in flight) -> seconds


def lognormal(median_s: float, sigma: float = 0.5, factor: Callable[[float], float] = lambda time_s: 1.0) -> Latency:
    """Latency of a storage without a limit of throughput; `factor` of the median by time."""
    return lambda time_s, draw, _: median_s * factor(time_s) * math.exp(sigma * draw.gauss(0, 1))


def burst(time_s: float, factor: float = 10.0, period_s: float = 20.0, length_s: float = 5.0) -> float:
    """`factor` in the last `length_s` of every period, else 1."""
    return factor if time_s % period_s >= period_s - length_s else 1.0


@dataclass
class PipelineModel:
    """One rank: `reads` reads per batch; a read that begins is not resized, nor does it end early."""

    latency: Latency
    step_s: float
    sizes: Sizes
    seed: int = 0
    reads: int = 1
    decode_s: float = 0.0
    batch_bytes: int = 1 << 20
    time_s: float = 0.0
    taken: int = 0
    trace: list[tuple[float, Decision]] = field(default_factory=list)
    peak_bytes: int = 0

    def __post_init__(self):
        self.draw = random.Random(self.seed)
        self.events: list = []
        self.missing: dict[int, int] = {}  # reads that a batch still needs
        self.next_read = 0
        self.in_flight = 0
        self.waiting: list[int] = []  # for a decoder
        self.decoding = 0
        self.ready: set[int] = set()
        self.is_waiting = True
        self.sums = dict.fromkeys(("reads", "read_s", "decodes", "decode_s", "wait_s"), 0)
        self._start_reads()

    def _advance(self, time_s):
        elapsed = time_s - self.time_s
        self.sums["read_s"] += elapsed * self.in_flight
        self.sums["decode_s"] += elapsed * self.decoding
        self.sums["wait_s"] += elapsed * self.is_waiting
        self.time_s = time_s

    def run_until(self, end_s):
        while self.events and self.events[0][0] <= end_s:
            time_s, kind, batch = heapq.heappop(self.events)
            self._advance(time_s)
            getattr(self, kind)(batch)
            self._start()
        self._advance(end_s)

    def read(self, batch):
        self.in_flight -= 1
        self.sums["reads"] += 1
        self.missing[batch] -= 1
        if not self.missing[batch]:
            del self.missing[batch]
            heapq.heappush(self.waiting, batch)

    def decode(self, batch):
        self.decoding -= 1
        self.sums["decodes"] += 1
        self.ready.add(batch)

    def step(self, _):
        self.is_waiting = True

    def _start(self):
        while self.waiting and self.decoding < self.sizes.decoders:
            self.decoding += 1
            heapq.heappush(self.events, (self.time_s + self.decode_s, "decode", heapq.heappop(self.waiting)))
        if self.is_waiting and self.taken in self.ready:
            self.ready.remove(self.taken)
            self.taken += 1
            self.is_waiting = False
            heapq.heappush(self.events, (self.time_s + self.step_s, "step", 0))
        self._start_reads()

    def _start_reads(self):
        while self.in_flight < self.sizes.readers:
            batch, number = divmod(self.next_read, self.reads)
            if batch >= self.taken + self.sizes.depth:
                break
            if number == 0:
                self.missing[batch] = self.reads
            self.next_read += 1
            self.in_flight += 1
            seconds = self.latency(self.time_s, self.draw, self.in_flight)
            heapq.heappush(self.events, (self.time_s + seconds, "read", batch))
        started = -(-self.next_read // self.reads) - self.taken
        self.peak_bytes = max(self.peak_bytes, started * self.batch_bytes)

    def statistics(self) -> LoadingStatistics:
        sums = self.sums
        return LoadingStatistics(
            time_s=self.time_s,
            num_batches=self.taken,
            wait_s=sums["wait_s"],
            num_fetches=sums["reads"],
            read_s=sums["read_s"],
            num_decodes=sums["decodes"],
            decode_s=sums["decode_s"],
            parts_per_batch=self.reads,
            batch_bytes=self.batch_bytes,
        )

    def control(self, law: ControlLaw, end_s: float) -> PipelineModel:
        """Run with the controller up to a time; `trace` has each decision."""
        while self.time_s < end_s:
            self.run_until(self.time_s + PERIOD_S)
            decision = law.update(self.statistics())
            self.sizes = decision.sizes
            self.trace.append((self.time_s, decision))
        return self
