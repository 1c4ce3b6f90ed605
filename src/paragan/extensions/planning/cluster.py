"""Clusters to plan for: workers, hosts, links, and how uneven they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from paragan.core.errors import ConfigError


@dataclass(frozen=True)
class Link:
    """A connection: latency of a message in seconds, and bytes per second in one direction."""

    latency_s: float
    bytes_per_s: float

    def seconds(self, num_bytes: float) -> float:
        """Return the time of one message."""
        return self.latency_s + num_bytes / self.bytes_per_s


@dataclass(frozen=True, kw_only=True)
class Interconnect:
    """Links between the workers of a host, and between hosts.

    workers_per_host: that share a host's link. algorithm: of collectives; `ring` over all ranks
    (gloo), or `hierarchical`: inside hosts, then between them (NCCL, TPU). source: of the figures.
    """

    inside: Link
    between: Link
    workers_per_host: int
    algorithm: Literal["ring", "hierarchical"] = "ring"
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Workers of a run and what joins them.

    cores: processor cores that the workers of a host share; None: every worker has a device.
    speed: of a worker, relative to the one that was profiled. jitter: standard deviation of the
    logarithm of an update's time, which is lognormal with its mean unchanged.
    """

    workers: int
    network: Interconnect
    cores: int | None = None
    speed: float = 1.0
    jitter: float = 0.0

    def with_workers(self, workers: int) -> Cluster:
        """Return the same cluster with another number of workers."""
        return replace(self, workers=workers)

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return -(-self.workers // self.network.workers_per_host)

    def core_wait(self, threads: int) -> float:
        """Return the time that a worker of so many threads waits for a core, per time it has one.

        0 where each thread has a core of its own.
        """
        if self.cores is None:
            return 0.0
        workers_of_host = min(self.network.workers_per_host, self.workers)
        return max(1.0, workers_of_host * threads / self.cores) - 1


_GBIT = 1e9 / 8
_HOST = Link(1e-4, 1.5e9)  # gloo between processes of a host

INTERCONNECTS: Mapping[str, Interconnect] = {
    "loopback": Interconnect(
        inside=_HOST,
        between=_HOST,
        workers_per_host=1 << 20,
        source="gloo on two ranks, measured: 0.4, 2.5 and 27 ms for 0.4, 4 and 40 MB",
    ),
    "ethernet-1g": Interconnect(
        inside=_HOST,
        between=Link(1e-4, 1 * _GBIT),
        workers_per_host=1,
        source="IEEE 802.3ab: 1 Gbit/s; latency 0.1 ms assumed",
    ),
    "ethernet-10g": Interconnect(
        inside=_HOST,
        between=Link(5e-5, 10 * _GBIT),
        workers_per_host=1,
        source="IEEE 802.3ae: 10 Gbit/s; latency 50 us assumed",
    ),
    "ethernet-25g": Interconnect(
        inside=Link(2e-5, 10e9),
        between=Link(3e-5, 25 * _GBIT),
        workers_per_host=8,
        algorithm="hierarchical",
        source="IEEE 802.3by; latency 30 us assumed",
    ),
    "v100-infiniband": Interconnect(
        inside=Link(1e-5, 150e9),
        between=Link(5e-6, 100 * _GBIT),
        workers_per_host=8,
        algorithm="hierarchical",
        source="NVIDIA V100 data sheet: NVLink 300 GB/s both ways; EDR 100 Gbit/s; latencies assumed",
    ),
    "ici-v3": Interconnect(
        inside=Link(1e-6, 656 * _GBIT),
        between=Link(1e-6, 656 * _GBIT),
        workers_per_host=2,
        algorithm="hierarchical",
        source="Jouppi et al. 2020 (CACM 63.7): 656 Gbit/s a link and direction; latency assumed",
    ),
}


def find_interconnect(name: str) -> Interconnect:
    """Return a preset; `ConfigError` for an unknown name."""
    if name not in INTERCONNECTS:
        raise ConfigError(f"unknown network {name!r}; choose one of {', '.join(INTERCONNECTS)}")
    return INTERCONNECTS[name]
