"""Simulated steps against formulas: sums and maxima of what the players cost; times of collectives: rings and trees."""

from dataclasses import replace

import numpy as np
import pytest

from paragan.core.dist import Collective, RankExchange
from paragan.extensions.planning.cluster import (
    INTERCONNECTS,
    Cluster,
    Interconnect,
    Link,
    collective_seconds,
    exchange_bytes,
    hidden_seconds,
)
from paragan.extensions.planning.simulation import SimulatedTime
from paragan.parallel import MemoryOptions, ddp, local_sgd, zero1, zero3
from paragan.schemes import asynchronous, shared_fakes, skipping
from tests.simulated_workers import cluster, constant, game, player_profile

LINK = Link(0.0, 1e8)


def mean_step(game, cluster, steps=60):
    return float(np.diff(SimulatedTime(game=game, cluster=cluster).run(steps))[20:].mean())


def reductions(cluster, *sizes):
    return sum(
        collective_seconds(ddp.Strategy().exchanges(size)[0], cluster.workers, cluster.network) for size in sizes
    )


def test_step_of_one_worker_is_the_sum_of_its_updates():
    costs = {"g_s": 0.1, "d_s": 0.08, "generate_s": 0.02, "load_s": 0.01, "between_s": 0.005, "d_updates": 2}
    assert mean_step(game(**costs), cluster(1)) == pytest.approx(0.1 + 2 * (0.08 + 0.02 + 0.01) + 0.005)


def test_synchronous_step_adds_the_reductions_of_both_gradients():
    several = cluster(4, LINK)
    small = zero1.Strategy()  # gradients of one bucket, which starts at the end of the backward pass
    small.exchanges = lambda size, is_opponent: () if is_opponent else ddp.Strategy().exchanges(1_000_000)
    expected = 0.18 + reductions(several, 1_000_000, 1_000_000)
    assert mean_step(game(strategy=small), several) == pytest.approx(expected)


def test_local_sgd_exchanges_every_second_update():
    several = cluster(4, LINK)
    strategy = local_sgd.Strategy(local_sgd.Options(every=2))
    assert mean_step(game(strategy=strategy), several, 62) == pytest.approx(
        0.18 + reductions(several, 4_000_000, 2_000_000) / 2, rel=1e-2
    )


def test_bf16_reductions_send_half():
    times = [
        SimulatedTime(game=game(strategy=ddp.Strategy(memory=MemoryOptions(bf16_reduce=b))), cluster=cluster(4, LINK))
        for b in (False, True)
    ]
    for time in times:
        time.run(10)
    assert times[1].bytes["parameters"] == times[0].bytes["parameters"] / 2
    assert times[0].bytes["parameters"] == 10 * 2 * 3 * 6_000_000


def test_zero3_also_gathers_the_opponent():
    plain, sharded = (
        SimulatedTime(game=game(strategy=kind.Strategy()), cluster=cluster(2, LINK)) for kind in (ddp, zero3)
    )
    plain.run(1)
    sharded.run(1)
    # D's turn: G is gathered twice, D twice and its gradient scattered; G's turn alike
    assert sharded.bytes["parameters"] == (2 * 4 + 3 * 2 + 2 * 2 + 3 * 4) * 1_000_000
    assert plain.bytes["parameters"] == 2 * 6_000_000


@pytest.mark.parametrize(("staleness", "latency_s"), [(1, 0.0), (1, 0.05), (1, 0.1), (2, 0.1), (6, 0.2), (0, 0.05)])
def test_asynchronous_step_follows_the_published_formula(staleness, latency_s):
    """docs/how-to/machines/asynchronous.md: max(t_G, t_D, (t_G + t_D + 2 L) / (S + 1))."""
    scheme = asynchronous.Scheme(asynchronous.Options(staleness=staleness))
    found = mean_step(game(scheme, g_s=0.1, d_s=0.08), cluster(2, Link(latency_s, float("inf"))), 200)
    assert found == pytest.approx(max(0.1, 0.08, (0.18 + 2 * latency_s) / (staleness + 1)), rel=0.01)


def test_asynchronous_ranks_reduce_the_gradient_of_one_player():
    scheme = asynchronous.Scheme()
    time = SimulatedTime(game=game(scheme), cluster=cluster(4, LINK))
    time.run(10)
    assert time.bytes["parameters"] == 10 * 2 * 6_000_000  # two groups of two ranks
    assert time.bytes["states"] == 10 * 2 * 2_000_000  # D's state to each rank of G
    assert time.bytes["fakes"] == 10 * 64 * 1000


@pytest.mark.parametrize(("reuse", "norms"), [(False, 3 + 5), (True, 5)])
def test_norms_of_g_are_counted_once_on_separate_ranks(reuse, norms):
    scheme = asynchronous.Scheme(asynchronous.Options(staleness=4, reuse=reuse))
    g = replace(player_profile(0, constant(0.1)), norms=5)
    latency_s = 1e-3
    found = mean_step(game(scheme, d_s=0.01, g=g, generate_norms=3), cluster(4, Link(latency_s, float("inf"))), 200)
    assert found == pytest.approx(0.1 + 2 * latency_s * norms, rel=1e-6)


def test_norms_of_ranks_on_two_hosts_have_the_latency_between_them():
    scheme = asynchronous.Scheme(asynchronous.Options(staleness=4, ranks={"g": 2, "d": 4}))
    slow, fast = Link(1e-3, float("inf")), Link(0.0, float("inf"))
    d = replace(player_profile(0, constant(0.1)), norms=10)
    found = {}
    for per_host in (4, 6):  # D's ranks are 2 to 5: on two hosts, or on one
        network = Interconnect(inside=fast, between=slow, workers_per_host=per_host)
        found[per_host] = mean_step(game(scheme, g_s=0.01, d=d), Cluster(workers=6, network=network))
    assert found[6] == pytest.approx(0.1) and found[4] == pytest.approx(0.1 + 10 * 2 * 3e-3)


def test_shared_fakes_generate_once_a_step():
    assert mean_step(game(shared_fakes.Scheme(), generate_s=0.02), cluster(1)) == pytest.approx(0.18)


def test_skipping_updates_d_in_every_second_step():
    scheme = skipping.Scheme(skipping.Options(every=2))
    assert mean_step(game(scheme), cluster(1), 61) == pytest.approx(0.1 + 0.08 / 2, rel=0.02)


@pytest.mark.parametrize("workers", [2, 64, 1024])
def test_jitter_costs_the_expected_maximum_over_the_workers(workers):
    sigma = 0.05
    draws = np.exp(sigma * np.random.default_rng(5).standard_normal((4000, workers)) - sigma**2 / 2).max(1).mean()
    uneven = cluster(workers, jitter=sigma)
    assert mean_step(game(batch=1024), uneven, 400) == pytest.approx(0.18 * draws, rel=0.01)


def test_workers_that_share_cores_take_turns():
    here = Cluster(workers=4, network=Interconnect(inside=LINK, between=LINK, workers_per_host=4), cores=2)
    alone = Cluster(workers=1, network=Interconnect(inside=LINK, between=LINK, workers_per_host=4), cores=2)
    free = local_sgd.Strategy(local_sgd.Options(every=1000))
    assert mean_step(game(strategy=free), here) == pytest.approx(2 * mean_step(game(strategy=free), alone))


def test_simulation_repeats_with_its_seed():
    uneven = cluster(8, LINK, jitter=0.1)
    first, second = (SimulatedTime(game=game(), cluster=uneven, seed=3).run(20) for _ in range(2))
    other = SimulatedTime(game=game(), cluster=uneven, seed=4).run(20)
    assert (first == second).all() and (first != other).any()


# collectives

SLOW = Link(1e-3, 1e6)
RING = Interconnect(inside=SLOW, between=SLOW, workers_per_host=1)


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
    seconds, sent = ring_all_reduce(num_ranks, 1_000_000, SLOW)
    assert collective_seconds(exchange, num_ranks, RING) == pytest.approx(seconds, rel=1e-12)
    assert exchange_bytes(exchange, num_ranks) == pytest.approx(sent, rel=1e-12)


def test_hierarchical_all_reduce_uses_the_fast_links_inside_hosts():
    fast = Link(1e-6, 1e9)
    ring = Interconnect(inside=fast, between=SLOW, workers_per_host=8)
    tree = Interconnect(inside=fast, between=SLOW, workers_per_host=8, algorithm="hierarchical")
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
    empty = RankExchange(kind=Collective.ALL_REDUCE, num_bytes=0)
    times = [collective_seconds(empty, ranks, network) for ranks in (2, 64, 1024)]
    assert 0 < times[0] <= times[1] <= times[2]


MIB = 1 << 20


@pytest.mark.parametrize(
    ("num_bytes", "last"), [(1000, 1000), (MIB, MIB), (14 * MIB, 13 * MIB), (26 * MIB, 25 * MIB), (40 * MIB, 14 * MIB)]
)
def test_all_buckets_but_the_last_are_reduced_during_the_backward_pass(num_bytes, last):
    """DDP's buckets: 1 MiB first, then 25 MiB each."""
    assert hidden_seconds(num_bytes, 6.0, 100.0) == pytest.approx(6 * (1 - last / num_bytes))
