"""Times of collectives: alpha-beta costs of rings and trees."""

import pytest

from paragan.core.dist import Collective, RankExchange
from paragan.extensions.planning.cluster import (
    INTERCONNECTS,
    Interconnect,
    Link,
    collective_seconds,
    exchange_bytes,
    hidden_seconds,
    latency_seconds,
)

LINK = Link(1e-3, 1e6)
RING = Interconnect(inside=LINK, between=LINK, workers_per_host=1)


def ring_all_reduce(num_ranks, num_bytes, link):
    """Send every message of a ring, round by round: reduce-scatter, then all-gather."""
    seconds, sent = 0.0, 0.0
    for _ in range(2):
        for _ in range(num_ranks - 1):
            seconds += link.latency_s + num_bytes / num_ranks / link.bytes_per_s
            sent += num_ranks * num_bytes / num_ranks
    return seconds, sent


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 1024])
def test_ring_all_reduce_takes_the_time_of_its_messages(num_ranks):
    exchange = RankExchange(kind=Collective.ALL_REDUCE, num_bytes=1_000_000)
    seconds, sent = ring_all_reduce(num_ranks, 1_000_000, LINK)
    assert collective_seconds(exchange, num_ranks, RING) == pytest.approx(seconds, rel=1e-12)
    assert exchange_bytes(exchange, num_ranks) == pytest.approx(sent, rel=1e-12)


def test_hierarchical_all_reduce_uses_the_fast_links_inside_hosts():
    fast = Link(1e-6, 1e9)
    ring = Interconnect(inside=fast, between=LINK, workers_per_host=8)
    tree = Interconnect(inside=fast, between=LINK, workers_per_host=8, algorithm="hierarchical")
    exchange = RankExchange(kind=Collective.ALL_REDUCE, num_bytes=8_000_000)
    inside_s = 2 * 7 / 8 * 8_000_000 / 1e9
    between_s = 2 * 7 / 8 * 8_000_000 / 1e6
    latency_s = 2 * (3 * 1e-6 + 3 * 1e-3)
    assert collective_seconds(exchange, 64, tree) == pytest.approx(inside_s + between_s + latency_s)
    assert collective_seconds(exchange, 64, tree) < collective_seconds(exchange, 64, ring)


@pytest.mark.parametrize("name", INTERCONNECTS)
def test_network_preset_has_a_source_and_costs_that_grow_with_ranks(name):
    network = INTERCONNECTS[name]
    assert network.source
    times = [latency_seconds(ranks, network) for ranks in (2, 64, 1024)]
    assert 0 < times[0] <= times[1] <= times[2]


MIB = 1 << 20


@pytest.mark.parametrize(
    ("num_bytes", "last"), [(1000, 1000), (MIB, MIB), (14 * MIB, 13 * MIB), (26 * MIB, 25 * MIB), (40 * MIB, 14 * MIB)]
)
def test_all_buckets_but_the_last_are_reduced_during_the_backward_pass(num_bytes, last):
    """DDP's buckets: 1 MiB first, then 25 MiB each."""
    assert hidden_seconds(num_bytes, 6.0, 100.0) == pytest.approx(6 * (1 - last / num_bytes))
