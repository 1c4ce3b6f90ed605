"""Time of an exchange of genomes on the links of a cluster, by the trainer's own routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paragan.coevolution.topology import Topology
from paragan.coevolution.workers.genome_exchange import exchange_routes
from paragan.scaling.cluster import Cluster, Interconnect
from paragan.scaling.grid_profile import GridProfile

Times = NDArray[np.float64]
# A message is sent as two, its head and its body; gloo waits for the receiver before it sends each.
_LATENCIES = 4


@dataclass(frozen=True)
class GridRoutes:
    """Exchange between the workers of a grid. sources, targets: workers, by route.

    seconds: from the begin of an exchange to the arrival, by route. num_bytes: of all routes.
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    seconds: Times
    num_bytes: float

    @classmethod
    def of(
        cls,
        profile: GridProfile,
        owners: Sequence[int],
        topology: Topology,
        network: Interconnect,
    ) -> GridRoutes:
        """Return the exchange with these owners of the cells.

        Lists that share a link arrive together: each has its own connection, and gets an equal
        share. Links send and receive at the same time.
        """
        routes = {way: cells for way, cells in exchange_routes(owners, topology).items() if cells}
        ways = np.array(list(routes), dtype=np.int64).reshape(-1, 2)
        cells = np.array([len(of_way) for of_way in routes.values()], dtype=np.float64)
        sources = ways[:, 0]
        targets = ways[:, 1]
        latencies = _LATENCIES * profile.messages * cells
        hosts = ways // network.workers_per_host
        is_inside = hosts[:, 0] == hosts[:, 1]
        sizes = cells * profile.state_bytes
        inside_s = _shared(sources, targets, np.where(is_inside, sizes, 0.0))
        between_s = _shared(hosts[:, 0], hosts[:, 1], np.where(is_inside, 0.0, sizes))
        inside = network.inside
        between = network.between
        seconds = np.where(
            is_inside,
            inside_s / inside.bytes_per_s + latencies * inside.latency_s,
            between_s / between.bytes_per_s + latencies * between.latency_s,
        )
        return cls(sources, targets, seconds, float(sizes.sum()))


def gather_seconds(profile: GridProfile, cells: int, cluster: Cluster) -> float:
    """Return the time in which the coordinator receives all cells, for a checkpoint."""
    if cluster.workers == 1:
        return 0.0
    link = cluster.control_link
    latencies = _LATENCIES * profile.messages * cells / cluster.workers
    return cells * profile.state_bytes / link.bytes_per_s + latencies * link.latency_s


def _shared(sources: NDArray[np.int64], targets: NDArray[np.int64], sizes: Times) -> Times:
    """Return the bytes that pass the busier end of each route together with its own."""
    size = 1 + max(sources.max(initial=0), targets.max(initial=0))
    sent = np.bincount(sources, sizes, minlength=size)
    received = np.bincount(targets, sizes, minlength=size)
    return np.maximum(sent[sources], received[targets])
