"""Time of a collective: alpha-beta costs of ring and hierarchical algorithms.

A message of n bytes takes alpha + n / beta. Thakur et al. 2005 ("Optimization of Collective
Communication Operations in MPICH") give the terms of rings and trees.
"""

from __future__ import annotations

from math import ceil, log2

from paragan.core.traffic import Collective, RankExchange, link_bytes
from paragan.extensions.planning.cluster import Interconnect, Link

_FIRST_BUCKET = 1 << 20  # bytes; torch's DDP reduces these first
_BUCKET = 25 << 20
_BACKWARD = 2 / 3  # share of an update that is its backward pass
_PASSES = {Collective.ALL_REDUCE: 2, Collective.ALL_GATHER: 1, Collective.REDUCE_SCATTER: 1}


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
        ring_s = min(ring_s, inside_s + _ring(hosts, exchange.num_bytes, network.between))
    return passes * (exchange.count * latency_s + ring_s)


def latency_seconds(num_ranks: int, network: Interconnect) -> float:
    """Return the time of an all-reduce of a few bytes."""
    return collective_seconds(RankExchange(kind=Collective.ALL_REDUCE, num_bytes=0), num_ranks, network)


def hidden_seconds(num_bytes: int, seconds: float, update_s: float) -> float:
    """Return the part of a bucketed all-reduce that runs during the backward pass.

    Every bucket is reduced when its gradients are complete: the last one when the backward ends.
    """
    last = num_bytes
    if num_bytes > _FIRST_BUCKET:
        last = (num_bytes - _FIRST_BUCKET) % _BUCKET or _BUCKET
    return min(seconds * (1 - last / max(1, num_bytes)), _BACKWARD * update_s)


def exchange_bytes(exchange: RankExchange, num_ranks: int) -> float:
    """Return the bytes of one exchange over the links of all its ranks (`core/traffic.py`)."""
    whole = exchange.num_bytes
    passed = whole / num_ranks if exchange.kind is Collective.ALL_GATHER else whole
    return num_ranks * link_bytes(exchange.kind, passed, num_ranks)


def _ring(num_ranks: int, num_bytes: float, link: Link) -> float:
    """Return the seconds of one pass without latencies: N - 1 messages of an N-th each."""
    return (num_ranks - 1) / num_ranks * num_bytes / link.bytes_per_s


def _latency(num_ranks: int, per_host: int, hosts: int, network: Interconnect) -> float:
    if network.algorithm == "ring":
        return (num_ranks - 1) * (network.inside if hosts == 1 else _slower(network)).latency_s
    # a tree inside hosts and one between them
    inside_s = ceil(log2(per_host)) * network.inside.latency_s if per_host > 1 else 0.0
    return inside_s + (ceil(log2(hosts)) * network.between.latency_s if hosts > 1 else 0.0)


def _slower(network: Interconnect) -> Link:
    """Return the link that limits a ring over several hosts."""
    latency_s = max(network.inside.latency_s, network.between.latency_s)
    return Link(latency_s, min(network.inside.bytes_per_s, network.between.bytes_per_s))
