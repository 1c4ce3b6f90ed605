"""Generations of a grid on simulated time, with the trainer's own assignment and routes.

Clocks of all workers move in one operation of numpy. What stays the same from one generation to the
next (owners of the cells, routes) is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paragan.coevolution.options import GridOptions
from paragan.coevolution.topology import topology_at
from paragan.coevolution.workers.cell_assignment import assign_cells, is_unbalanced
from paragan.coevolution.workers.membership import POLL_S
from paragan.scaling.cluster import Cluster
from paragan.scaling.grid_profile import GenerationWork, GridProfile
from paragan.scaling.grid_routes import GridRoutes, Times, gather_seconds

_POLL_S = POLL_S / 2  # the coordinator reads results in this period, half of it late on average


@dataclass(frozen=True)
class GridCosts:
    """What is simulated. images: real ones of one cell in a generation. generations: of the run.

    gather_period: generations after which the coordinator gathers all cells, for checkpoints,
    samples and scores; 0: never. repeated: generations that are repeated after a failure, on
    average.
    """

    profile: GridProfile
    options: GridOptions
    images: int
    generations: int
    gather_period: int = 0
    repeated: float = 0.5


@dataclass
class SimulatedGrid:
    """Clocks of the workers of a grid; one worker is a process without a coordinator.

    In lock-step (`grid.age` 0) all workers begin a generation together, exchange, and compute. With
    an age a worker begins while it is not more generations ahead of the last one, and reads copies
    that have arrived. has_coordinator: False: generations begin without its delay.
    """

    costs: GridCosts
    cluster: Cluster
    seed: int = 0
    has_coordinator: bool = True
    num_bytes: float = field(default=0.0, init=False)  # of the newest exchange, over all links

    def __post_init__(self) -> None:
        workers = self.cluster.workers
        uneven = self.cluster.unevenness
        slow = np.random.default_rng([self.seed, 0]).random(workers) < uneven.stragglers
        self._slowness = np.where(slow, uneven.straggler_factor, 1.0)
        self._random = np.random.default_rng([self.seed, 3])
        self.owners = self._assign()

    def run(self, num: int) -> Times:
        """Simulate generations; return the time at which each ends on the last worker.

        They are spread over the run, whose neighbourhoods may change.
        """
        done = np.zeros(self.cluster.workers)
        ends = np.zeros(num + 1)
        before = None
        for number in range(num):
            change = _last_change(self.costs.options, number * self.costs.generations // num)
            if change != before:
                before = change
                self._connect(change)
            begins = np.maximum(done, self._released_s(ends, number))
            ready = self._posts.exchange(begins)
            done = ready + self._compute_s * self._jitter()
            ends[number + 1] = done.max()
        return ends[1:]

    def _assign(self) -> list[int]:
        """Return the worker of each cell, as the coordinator assigns them once it knows speeds."""
        shape = self.costs.options.rows_columns
        owners = assign_cells(*shape, [1.0] * self.cluster.workers)
        speeds = (1 / self._slowness).tolist()
        return assign_cells(*shape, speeds) if is_unbalanced(owners, *shape, speeds) else owners

    def _connect(self, generation: int) -> None:
        """Compute what each worker does in a generation, and the exchange before it."""
        costs = self.costs
        topology = topology_at(costs.options, generation)
        cells: list[list[int]] = [[] for _ in range(self.cluster.workers)]
        for cell, owner in enumerate(self.owners):
            cells[owner].append(cell)
        works = [GenerationWork.of(of_worker, topology) for of_worker in cells]
        alone_s = np.array([costs.profile.seconds(work) for work in works])
        here = self.cluster.workers_of_host
        slower = np.array([costs.profile.contention(work.cells, here) for work in works])
        waiting = self.cluster.core_wait(costs.profile.threads) * costs.profile.cpu_share
        self._compute_s = alone_s * slower * (1 + waiting) * self._slowness / self.cluster.speed
        routes = GridRoutes.of(costs.profile, self.owners, topology, self.cluster.network)
        self._posts = _Posts(routes, costs.options.age)
        self.num_bytes = routes.num_bytes

    def _released_s(self, ends: Times, number: int) -> float:
        """Return the time from which the coordinator lets workers begin a generation."""
        finished = number - self.costs.options.age  # by all workers
        if finished <= 0 or self.cluster.workers == 1:
            return 0.0
        seconds = float(ends[finished])
        period = self.costs.gather_period
        if period and finished % period == 0:
            seconds += gather_seconds(self.costs.profile, len(self.owners), self.cluster)
        if self.has_coordinator:
            seconds += _POLL_S + 2 * self.cluster.control_link.latency_s
        return seconds

    def _jitter(self) -> NDArray[np.float64]:
        sigma = self.cluster.unevenness.jitter
        return np.exp(sigma * self._random.standard_normal(self.cluster.workers) - sigma**2 / 2)


class _Posts:
    """Messages between the workers, as `PeerConnection` posts them.

    One is in flight on each route; of those that wait, the newest is next. In lock-step none waits.
    """

    def __init__(self, routes: GridRoutes, age: int) -> None:
        self._routes = routes
        self._age = age
        size = len(routes.sources)
        self._free = np.zeros(size)  # time at which the message in flight arrives, by route
        self._waits = np.zeros(size, dtype=bool)  # whether the last message waits for it
        self._arrivals: list[Times] = []  # of the messages of the last generations

    def exchange(self, begins: Times) -> Times:
        """Post the cells of all workers; return when each has copies that are not too old.

        begins: time at which each worker posts.
        """
        routes = self._routes
        now = begins[routes.sources]
        has_left = self._waits & (self._free <= now)
        self._free += np.where(has_left, routes.seconds, 0.0)
        self._waits = self._free > now  # a message that still waits is replaced, and arrives no later
        arrivals = np.maximum(self._free, now) + routes.seconds
        self._free = np.where(self._waits, self._free, arrivals)
        self._arrivals = [*self._arrivals, arrivals][-1 - self._age :]
        ready = begins.copy()
        np.maximum.at(ready, routes.targets, np.min(self._arrivals, axis=0))
        return ready


def _last_change(options: GridOptions, generation: int) -> int:
    """Return the generation since which the neighbourhoods are those of this one."""
    return max((change.at for change in options.changes if change.at <= generation), default=0)


def mean_seconds(ends: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the mean seconds of a generation, without the first."""
    return float(np.diff(np.asarray(ends)).mean())
