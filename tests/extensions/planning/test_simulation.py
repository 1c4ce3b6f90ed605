"""Simulated steps against formulas: sums and maxima of what the players cost."""

import numpy as np
import pytest

from paragan.extensions.planning.cluster import Cluster, Interconnect, Link, collective_seconds
from paragan.extensions.planning.simulation import SimulatedTime
from paragan.parallel import MemoryOptions, ddp, local_sgd, zero1, zero3
from paragan.schemes import asynchronous, shared_fakes, skipping
from tests.simulated_workers import cluster, game

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
    """docs/asynchronous.md: max(t_G, t_D, (t_G + t_D + 2 L) / (S + 1))."""
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
