"""What the proxy does to requests: latency, bursts, throttling, and faults with their probabilities."""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Conditions:
    """Latency and faults of a storage; probabilities are per request, from 0 to 1.

    latency_ms: median of a log-normal distribution with parameter sigma. burst_factor: of latency in the last
    burst_s of every period_s. bytes_per_s: of one connection; None: unlimited. cut: the connection ends within
    the body. truncated: a complete response with fewer bytes. wrong_bytes: bits of the body change. unavailable:
    status 503. silent: no response until the client gives up.
    """

    latency_ms: float = 0.0
    sigma: float = 0.0
    burst_factor: float = 1.0
    burst_s: float = 5.0
    period_s: float = 20.0
    bytes_per_s: float | None = None
    cut: float = 0.0
    truncated: float = 0.0
    wrong_bytes: float = 0.0
    unavailable: float = 0.0
    silent: float = 0.0

    def is_burst(self, seconds: float) -> bool:
        """Whether a burst lasts so many seconds after the start."""
        return self.burst_factor != 1 and seconds % self.period_s >= self.period_s - self.burst_s

    def treatment(self, seed: int, request: str, times: int, seconds: float) -> Treatment:
        """Draw what happens to a request that was sent so many times before."""
        draws = random.Random(hashlib.sha256(f"{seed} {request} {times}".encode()).digest())
        latency_s = self.latency_ms / 1000 * math.exp(self.sigma * draws.gauss(0, 1))
        if self.is_burst(seconds):
            latency_s *= self.burst_factor
        place = draws.random()
        number = draws.random()
        for fault in FAULTS:
            probability = getattr(self, fault)
            if number < probability:
                return Treatment(latency_s, fault, place)
            number -= probability
        return Treatment(latency_s, None, place)


QUIET = Conditions()
FAULTS = ("cut", "truncated", "wrong_bytes", "unavailable", "silent")


@dataclass(frozen=True)
class Treatment:
    """What happens to one request. fault: one of `FAULTS`. place: of the fault in the body, 0 to 1."""

    latency_s: float
    fault: str | None
    place: float
