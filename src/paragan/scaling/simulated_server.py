"""Simulated messages of a parameter server: gradients to rank 0, and states to the workers.

All messages share the link of rank 0, in either direction. Its work between a gradient and an
answer is not simulated: a profile does not have the time of an optimiser step alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paragan.core.types import Side
from paragan.scaling.cluster import Interconnect, Link
from paragan.scaling.profile import RunProfile

Times = NDArray[np.float64]
Ranks = NDArray[np.int64]


def link_between(sources: Ranks, targets: Ranks, network: Interconnect) -> Link:
    """Return the link of a host if no message leaves it, else that between hosts."""
    is_inside = sources // network.workers_per_host == targets // network.workers_per_host
    return network.inside if is_inside.all() else network.between


class SharedLink:
    """One direction of a link that messages pass one by one, in the order in which they are ready.

    Each call has one message of every worker. A worker may be calls ahead of another, so messages
    of earlier calls are queued with those of later ones.
    """

    def __init__(self) -> None:
        self._ready = np.zeros(0)
        self._seconds = np.zeros(0)
        self._free_s = 0.0

    def transfer(self, ready: Times, seconds: Times) -> Times:
        """Return when each message has passed. ready: when it could start."""
        all_ready = np.concatenate([self._ready, ready])
        all_seconds = np.concatenate([self._seconds, seconds])
        order = np.argsort(all_ready, kind="stable")
        sent_s = np.cumsum(all_seconds[order])
        idle_s = np.maximum.accumulate(all_ready[order] - sent_s + all_seconds[order])
        ends = np.empty_like(all_ready)
        ends[order] = np.maximum(idle_s, self._free_s) + sent_s
        first = int(np.searchsorted(all_ready[order], ready.min()))  # later ones are not ready before
        if first:
            self._free_s = float(ends[order[first - 1]])
        self._ready = all_ready[order[first:]]  # sorted, which makes the next sort short
        self._seconds = all_seconds[order[first:]]
        return ends[-len(ready) :]


@dataclass
class SimulatedServer:
    """`ServerMessages` of a simulation.

    now: clocks of all ranks, which calls move. workers: ranks that compute. profile: has the bytes
    of states; gradients with buffers have as many. count: called with the bytes of messages.
    """

    now: Times
    workers: Ranks
    profile: RunProfile
    network: Interconnect
    count: Callable[[str, float], None]
    _into: SharedLink = field(default_factory=SharedLink)
    _out: SharedLink = field(default_factory=SharedLink)
    _complete: dict[tuple[Side, int], float] = field(default_factory=dict)
    _answers: dict[tuple[Side, int], tuple[Times, Times]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_inside = self.workers < self.network.workers_per_host
        inside = self.network.inside
        between = self.network.between
        self._latency_s = np.where(is_inside, inside.latency_s, between.latency_s)
        self._s_per_byte = 1 / np.where(is_inside, inside.bytes_per_s, between.bytes_per_s)

    def push(self, side: Side, turn: int, required: int) -> None:
        """Send the gradients of a turn, and the answers to them."""
        if len(self.now) == 1:
            return
        num_bytes = self.profile.player(side).state_bytes
        seconds = num_bytes * self._s_per_byte
        arrived = self._into.transfer(self.now[self.workers], seconds) + self._latency_s
        self._complete[side, turn] = float(arrived.max())
        answered = np.maximum(arrived, self._complete.get((side, required), 0.0))
        received = self._out.transfer(answered, seconds) + self._latency_s
        self._answers[side, turn] = (answered, received)
        self.now[0] = max(self.now[0], self._complete[side, turn])
        self.count("parameters", 2 * num_bytes * len(self.workers))

    def pull(self, side: Side, required: int) -> None:
        """Wait for the first answer with a turn of all workers: to that turn, or a later one."""
        complete_s = self._complete.get((side, required))
        if complete_s is None:
            return
        arrivals = np.full(len(self.workers), np.inf)
        turn = required
        while np.isinf(arrivals).any():
            answered, received = self._answers[side, turn]
            arrivals = np.minimum(arrivals, np.where(answered >= complete_s, received, np.inf))
            turn += 1
        self.now[self.workers] = np.maximum(self.now[self.workers], arrivals)
        self._complete.pop((side, required - 1), None)
        self._answers.pop((side, required - 1), None)
