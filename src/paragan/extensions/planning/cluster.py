"""Clusters to plan for: workers, hosts, links, how uneven they are, and the time of a collective on them.

A message of n bytes takes alpha + n / beta. Thakur et al. 2005 ("Optimization of Collective
Communication Operations in MPICH") give the terms of rings and trees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2
from typing import Literal

from paragan.core.dist import Collective, RankExchange, link_bytes
from paragan.core.errors import ConfigError

_FIRST_BUCKET = 1 << 20  # bytes; torch's DDP reduces these first
_BUCKET = 25 << 20
_BACKWARD = 2 / 3  # share of an update that is its backward pass
# times that all bytes pass the links of a ring
_PASSES = {Collective.ALL_REDUCE: 2, Collective.ALL_GATHER: 1, Collective.REDUCE_SCATTER: 1}


@dataclass(frozen=True)
class Link:
    """A connection: latency of a message in seconds, and bytes per second in one direction."""

    latency_s: float
    bytes_per_s: float


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
        workers_per_host=1 << 20,  # any number
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


def collective_seconds(
    exchange: RankExchange, num_ranks: int, network: Interconnect, per_host: int | None = None
) -> float:
    """Return the time of an exchange over so many ranks, which are placed host by host.

    A ring all-reduce is a reduce-scatter and an all-gather. per_host: of these ranks; None: as many
    as a host has workers.
    """
    if num_ranks < 2:
        return 0.0
    passes = _PASSES[exchange.kind]
    per_host = min(per_host or network.workers_per_host, num_ranks)
    hosts = ceil(num_ranks / per_host)
    latency_s = _latency(num_ranks, per_host, hosts, network)
    ring_s = _ring(num_ranks, exchange.num_bytes, network.inside if hosts == 1 else _slower(network))
    if network.algorithm == "hierarchical" and hosts > 1:
        # every NIC carries the part of each worker of its host
        inside_s = _ring(per_host, exchange.num_bytes, network.inside)
        hierarchical_s = inside_s + _ring(hosts, exchange.num_bytes, network.between)
        ring_s = min(ring_s, hierarchical_s)  # libraries choose the faster one
    # `count` collectives share the bytes, and each has the latency
    return passes * (exchange.count * latency_s + ring_s)


def hidden_seconds(num_bytes: int, seconds: float, update_s: float) -> float:
    """Return the part of a bucketed all-reduce that runs during the backward pass.

    Every bucket is reduced when its gradients are complete: the last one when the backward ends.
    """
    last = num_bytes
    if num_bytes > _FIRST_BUCKET:
        last = (num_bytes - _FIRST_BUCKET) % _BUCKET or _BUCKET
    return min(seconds * (1 - last / max(1, num_bytes)), _BACKWARD * update_s)


def exchange_bytes(exchange: RankExchange, num_ranks: int) -> float:
    """Return the bytes of one exchange over the links of all its ranks (`core/dist.py`)."""
    whole = exchange.num_bytes
    # in an all-gather a rank passes its part of the whole, in the others a tensor of that size
    passed = whole / num_ranks if exchange.kind is Collective.ALL_GATHER else whole
    return num_ranks * link_bytes(exchange.kind, passed, num_ranks)


def _ring(num_ranks: int, num_bytes: float, link: Link) -> float:
    """Return the seconds of one pass without latencies: N - 1 messages of an N-th each."""
    return (num_ranks - 1) / num_ranks * num_bytes / link.bytes_per_s


def _latency(num_ranks: int, per_host: int, hosts: int, network: Interconnect) -> float:
    """Return the seconds that one pass of a message without content takes."""
    if network.algorithm == "ring":
        return (num_ranks - 1) * (network.inside if hosts == 1 else _slower(network)).latency_s
    # a tree inside hosts and one between them
    inside_s = ceil(log2(per_host)) * network.inside.latency_s if per_host > 1 else 0.0
    return inside_s + (ceil(log2(hosts)) * network.between.latency_s if hosts > 1 else 0.0)


def _slower(network: Interconnect) -> Link:
    """Return the link that limits a ring over several hosts."""
    latency_s = max(network.inside.latency_s, network.between.latency_s)
    return Link(latency_s, min(network.inside.bytes_per_s, network.between.bytes_per_s))
