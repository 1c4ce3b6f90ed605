"""Generations of a grid on simulated time, with the trainer's own assignment and routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paragan.coevolution.options import GridOptions
from paragan.coevolution.topology import topology_at
from paragan.coevolution.workers.cell_assignment import assign_cells
from paragan.coevolution.workers.genome_exchange import exchange_routes
from paragan.scaling.cluster import Cluster
from paragan.scaling.profile import Curve


@dataclass(frozen=True)
class GridProfile:
    """Costs of a generation. generation_s: seconds by the number of a worker's cells, without the
    exchange. state_bytes: of one cell in an exchange.
    """

    generation_s: Curve
    state_bytes: int


def simulate_generations(
    profile: GridProfile, options: GridOptions, cluster: Cluster, num_generations: int, age: int = 0, seed: int = 0
) -> NDArray[np.float64]:
    """Return the time at which each generation ends on the last worker.

    age: generations by which a neighbour's copy may be behind; 0: lock-step.
    """
    rows, columns = map(int, options.shape.split("x"))
    workers = cluster.workers
    owners = assign_cells(rows, columns, [1.0] * workers)
    random = np.random.default_rng([seed, 3])
    network = cluster.network
    seconds = np.asarray([profile.generation_s.at(owners.count(worker)) for worker in range(workers)])
    seconds = seconds * _contention(cluster) / cluster.speed
    done = np.zeros((num_generations + 1, workers))  # end of each generation, by worker
    sigma = cluster.unevenness.jitter
    for number in range(num_generations):
        routes = exchange_routes(owners, topology_at(options, number))
        source = max(0, number - age)
        # the coordinator lets no worker be more than `age` generations ahead of the slowest
        begins = np.maximum(done[number], done[source].max())
        sent = np.zeros(workers)
        for (a, b), cells in routes.items():
            if not cells:
                continue
            sent[a] += len(cells) * profile.state_bytes / network.between.bytes_per_s
            arrives = done[source].max() + sent[a] + network.between.latency_s
            begins[b] = max(begins[b], arrives)
        jitter = np.exp(sigma * random.standard_normal(workers) - sigma**2 / 2)
        done[number + 1] = begins + seconds * jitter
    return np.asarray(done[1:].max(axis=1))


def grid_bytes(profile: GridProfile, options: GridOptions, workers: int) -> float:
    """Return the bytes of one exchange over all links."""
    rows, columns = map(int, options.shape.split("x"))
    routes = exchange_routes(assign_cells(rows, columns, [1.0] * workers), topology_at(options, 0))
    return float(sum(len(cells) for cells in routes.values()) * profile.state_bytes)


def _contention(cluster: Cluster) -> float:
    here = min(cluster.network.workers_per_host, cluster.workers)
    return 1.0 if cluster.cores is None else max(1.0, here / cluster.cores)


def mean_seconds(ends: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the mean seconds of a generation, without the first."""
    return float(np.diff(np.asarray(ends)).mean())
