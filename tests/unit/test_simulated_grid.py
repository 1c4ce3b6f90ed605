"""Generations of a grid on simulated time, and the forecasts of them."""

from __future__ import annotations

import heapq
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from paragan.build.grid_factory import GridFactory
from paragan.coevolution.fitness import FitnessEvaluator
from paragan.coevolution.genome import EvalNetwork
from paragan.coevolution.options import GridOptions, NeighbourhoodChange
from paragan.coevolution.topology import torus
from paragan.coevolution.workers.cell_assignment import assign_cells
from paragan.coevolution.workers.membership import POLL_S
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.scaling import grid_routes
from paragan.scaling.cluster import Interconnect, Link, Unevenness
from paragan.scaling.forecast import Goal
from paragan.scaling.grid_forecast import forecast_grid
from paragan.scaling.grid_profile import GenerationWork
from paragan.scaling.grid_routes import GridRoutes
from paragan.scaling.profile import Curve
from paragan.scaling.simulated_grid import GridCosts, SimulatedGrid, mean_seconds
from tests.simulated_workers import FREE, cluster, constant, grid_profile

OPTIONS = GridOptions(shape="2x2")
LINK = Link(0.001, 1e7)
LATENCIES_S = 4 * 3 * LINK.latency_s  # of a cell's messages
STRONG = Goal(1, "strong")


def costs(options=OPTIONS, generations=100, gather_period=0, repeated=0.5, **profile):
    return GridCosts(grid_profile(**profile), options, 1000, generations, gather_period, repeated)


def seconds(workers, link=FREE, age=0, has_coordinator=False, given=None, **changes):
    found = given or costs(replace(OPTIONS, age=age))
    simulated = SimulatedGrid(found, cluster(workers, link, **changes), has_coordinator=has_coordinator)
    return mean_seconds(simulated.run(50))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_generation_takes_the_time_of_a_workers_cells(workers):
    assert seconds(workers) == pytest.approx(4 / workers)


def test_lock_step_adds_the_exchange_with_the_neighbours():
    # on a 2x2 torus every worker sends its cell to two others, over one link
    assert seconds(4, LINK) == pytest.approx(1 + 2 * 0.1 + LATENCIES_S)


def test_lists_that_share_a_link_arrive_together():
    routes = GridRoutes.of(grid_profile(), [0, 1, 2, 3], torus(2, 2), Interconnect(LINK, LINK, 1))
    assert routes.seconds == pytest.approx(np.full(8, 0.2 + LATENCIES_S))
    assert routes.num_bytes == 8_000_000


def test_workers_of_a_host_share_the_link_between_hosts():
    network = Interconnect(Link(0.0, 1e8), Link(0.0, 1e7), 2)
    routes = GridRoutes.of(grid_profile(), [0, 1, 2, 3], torus(2, 2), network)
    by_way = {
        (int(a), int(b)): found for a, b, found in zip(routes.sources, routes.targets, routes.seconds, strict=True)
    }
    assert by_way[0, 1] == pytest.approx(0.01)  # inside
    assert by_way[0, 2] == by_way[1, 3] == pytest.approx(0.2)  # two workers send 1 MB each to the other host


def test_coordinator_starts_each_generation_when_it_has_read_the_last_result():
    assert seconds(4, LINK, has_coordinator=True) - seconds(4, LINK) == pytest.approx(POLL_S / 2 + 2 * LINK.latency_s)
    assert seconds(1, LINK, has_coordinator=True) == pytest.approx(4)  # one process has none


def test_checkpoint_waits_for_all_cells():
    saving = seconds(4, LINK, given=costs(gather_period=2))
    assert saving - seconds(4, LINK) == pytest.approx((4 * 0.1 + LATENCIES_S) / 2, rel=0.05)


def test_exchange_sends_each_cell_to_its_neighbours():
    for workers, num_bytes in ((1, 0), (4, 8_000_000)):
        simulated = SimulatedGrid(costs(), cluster(workers))
        simulated.run(1)
        assert simulated.num_bytes == num_bytes


def test_older_copies_hide_the_exchange():
    assert seconds(4, LINK, age=1) == pytest.approx(1)


def event_driven(age, workers, computes_s, transfer_s, peers):
    """Ends of the generations, by a queue of events of single workers and messages."""
    num = computes_s.shape[1]
    finished, begun = [0] * workers, [0] * workers
    waiting, events, ends = {}, [], np.zeros(num)
    flights, following, newest = {}, {}, {}

    def post(way, version, now):
        if way in flights:
            following[way] = version
        else:
            flights[way] = version
            heapq.heappush(events, (now + transfer_s, 1, way))

    def start(now):
        for worker in range(workers):
            at = begun[worker]
            if at < num and at == finished[worker] and min(finished) >= at - age:
                begun[worker] += 1
                waiting[worker] = at
                for peer in peers[worker]:
                    post((worker, peer), at, now)
        for worker, at in list(waiting.items()):
            if all(newest.get((peer, worker), -1) >= max(0, at - age) for peer in peers[worker]):
                del waiting[worker]
                heapq.heappush(events, (now + computes_s[worker, at], 0, worker))

    start(0.0)
    while events:
        now, kind, what = heapq.heappop(events)
        if kind == 0:
            ends[finished[what]] = max(ends[finished[what]], now)
            finished[what] += 1
        else:
            newest[what] = flights.pop(what)
            if what in following:
                post(what, following.pop(what), now)
        start(now)
    return ends


@pytest.mark.parametrize("age", [0, 1, 2, 3])
@pytest.mark.parametrize("transfer_s", [0.01, 0.7, 2.0, 5.0])
def test_age_bounds_are_those_of_single_messages(age, transfer_s):
    simulated = SimulatedGrid(
        costs(replace(OPTIONS, age=age)),
        cluster(4, Link(0.0, 2e6 / transfer_s), unevenness=Unevenness(jitter=0.3)),
        has_coordinator=False,
    )
    random = np.random.default_rng([0, 3])
    jitter = np.exp(0.3 * random.standard_normal((60, 4)) - 0.3**2 / 2)
    peers = [(1, 2), (0, 3), (0, 3), (1, 2)]
    found = event_driven(age, 4, jitter.T, transfer_s, peers)
    assert simulated.run(60) == pytest.approx(found)


def test_jitter_costs_the_maximum_over_the_workers():
    sigma = 0.1
    draws = np.exp(sigma * np.random.default_rng(1).standard_normal((4000, 4)) - sigma**2 / 2).max(1).mean()
    uneven = cluster(4, unevenness=Unevenness(jitter=sigma))
    found = SimulatedGrid(costs(), uneven, has_coordinator=False).run(600)
    assert mean_seconds(found) == pytest.approx(draws, rel=0.02)


def test_workers_of_a_host_slow_each_other_down_as_measured():
    busy = costs(busy_s=Curve((1, 4), (1.5, 6.0)), busy_workers=3)
    host = cluster(4).network
    for workers_per_host, slower in ((1, 1.0), (2, 1.25), (4, 1.5)):
        network = replace(host, workers_per_host=workers_per_host)
        one = replace(cluster(4), network=network)
        ends = SimulatedGrid(busy, one, has_coordinator=False).run(10)
        assert mean_seconds(ends) == pytest.approx(slower)


def test_workers_wait_for_cores_with_what_a_core_computes():
    network = replace(cluster(4).network, workers_per_host=4)
    two_cores = replace(cluster(4, cores=2), network=network)
    for share, slower in ((1.0, 2.0), (0.25, 1.25), (0.0, 1.0)):
        ends = SimulatedGrid(costs(cpu_share=share), two_cores, has_coordinator=False).run(10)
        assert mean_seconds(ends) == pytest.approx(slower)


def test_cells_move_away_from_a_straggler_as_the_coordinator_moves_them():
    uneven = cluster(2, unevenness=Unevenness(stragglers=0.5, straggler_factor=4.0))
    simulated = next(one for seed in range(99) if sum((one := SimulatedGrid(costs(), uneven, seed))._slowness) == 5)
    slow = int(simulated._slowness.argmax())
    assert simulated.owners.count(slow) == 1
    assert mean_seconds(simulated.run(10)) == pytest.approx(4, rel=0.01)  # 8 without


def test_work_of_a_worker_is_what_the_trainer_computes(monkeypatch):
    """Forward passes of the comparison, counted in a generation of a real population."""
    words = ["grid.shape=2x3", "grid.batches=1", "grid.fitness.num_images=4", "grid.executor=loop", "train.batch=4"]
    small = ["model.width=4", "data.size=8", "evaluation.features=null", "train.threads=1"]
    config = read_recipe("digits", [*words, *small])
    threads = torch.get_num_threads()
    factory = GridFactory.of(config, Path("none"), lambda text: None, must_keep=False)
    torch.set_num_threads(threads)
    cells = [factory.cell(number) for number in range(6)]
    population = factory.population(cells, lambda text: None)
    passes = []
    logits, load = FitnessEvaluator._logits, EvalNetwork.load
    monkeypatch.setattr(FitnessEvaluator, "_logits", lambda *given: (passes.append("d"), logits(*given))[1])
    generator = population.make_evaluator(0).eval_networks[Side.G]

    def loaded(network, *given, **named):
        passes.extend("g" if network is generator else "")
        return load(network, *given, **named)

    monkeypatch.setattr(EvalNetwork, "load", loaded)
    population.evolve()
    population.release_workers()
    assert len(passes) == GenerationWork.of(range(6), torus(2, 3)).passes


def test_cells_of_a_larger_grid_have_more_neighbours_to_compare():
    alone = GenerationWork.of(range(9), torus(3, 3))
    larger = torus(6, 6)
    block = [cell for cell, owner in enumerate(assign_cells(6, 6, [1.0] * 4)) if owner == 0]
    part = GenerationWork.of(block, larger)
    assert (alone.cells, alone.generators) == (9, 18) and (part.cells, part.generators) == (9, 30)
    assert part.passes > alone.passes
    compared = costs(evaluate_s=Curve((1, 1001), (0.001, 1.001)), score_s=Curve((1, 101), (0.1, 10.1)))
    both = [compared.profile.seconds(work) for work in (alone, part)]
    assert both == pytest.approx([9 + one.passes / 1000 + one.generators / 10 for one in (alone, part)])


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("age", [0, 1])
@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_losses_add_up_to_the_whole_generation(workers, age, scaling):
    uneven = Unevenness(jitter=0.05, stragglers=0.3, straggler_factor=1.3, mtbf_hours=2000)
    given = costs(replace(OPTIONS, age=age), evaluate_s=Curve((1, 101), (0.01, 1.01)))
    found = forecast_grid(given, cluster(workers, LINK, unevenness=uneven), Goal(1, scaling))
    assert list(found.losses) == ["compute", "imbalance", "communication", "jitter", "stragglers", "failures"]
    assert sum(found.losses.values()) == pytest.approx(100)
    assert found.losses["compute"] == pytest.approx(100 * found.efficiency)


def test_one_process_has_no_loss():
    found = forecast_grid(costs(generations=900), cluster(1, LINK), STRONG)
    assert found.efficiency == pytest.approx(1) and found.losses["compute"] == pytest.approx(100)
    assert found.images_per_s == pytest.approx(4 * 1000 / 4) and found.hours == pytest.approx(1)
    assert found.cost is None


def test_cells_that_do_not_divide_are_an_imbalance():
    found = forecast_grid(costs(), cluster(3), STRONG)
    assert found.cells == 2
    assert found.losses["imbalance"] == pytest.approx(100 * (2 - 4 / 3) / found.generation_s)


@pytest.mark.parametrize("cause", ["communication", "jitter", "stragglers", "failures"])
def test_each_cause_of_loss_has_its_share(cause):
    causes = {
        "communication": cluster(4, LINK),
        "jitter": cluster(4, unevenness=Unevenness(jitter=0.05)),
        "stragglers": cluster(4, unevenness=Unevenness(stragglers=0.99, straggler_factor=1.3)),
        "failures": cluster(4, unevenness=Unevenness(mtbf_hours=10)),
    }
    losses = forecast_grid(costs(), causes[cause], STRONG).losses
    assert losses[cause] > 0.1
    others = {name for name, share in losses.items() if share > 1e-6} - {cause, "compute"}
    assert others <= {"communication"}  # the coordinator's delay


def test_failure_repeats_half_a_generation_or_what_lies_after_the_last_checkpoint():
    uneven = cluster(4, unevenness=Unevenness(mtbf_hours=10, restart_s=60))
    for repeated in (0.5, 50):
        found = forecast_grid(costs(repeated=repeated), uneven, STRONG)
        whole_s = forecast_grid(costs(), cluster(4), STRONG).generation_s
        lost = 4 / 36_000 * (60 + repeated * whole_s)
        assert found.generation_s == pytest.approx(whole_s / (1 - lost))
    with pytest.raises(ConfigError, match="fail before their work of a generation is done"):
        forecast_grid(costs(), cluster(4, unevenness=Unevenness(mtbf_hours=0.001)), STRONG)


def test_weak_scaling_adds_cells_and_their_images():
    one, four = (forecast_grid(costs(), cluster(n), Goal(1, "weak", cost_per_hour=2.0)) for n in (1, 4))
    assert (one.shape, four.shape) == ("2x2", "4x4") and one.cells == four.cells == 4
    assert four.images_per_s == pytest.approx(4 * one.images_per_s, rel=0.01)
    assert four.cost == pytest.approx(4 * one.cost, rel=0.01)


def test_routes_of_1024_workers_are_computed_once_for_each_neighbourhood(monkeypatch):
    calls = []
    exchange_routes = grid_routes.exchange_routes
    monkeypatch.setattr(grid_routes, "exchange_routes", lambda *given: (calls.append(1), exchange_routes(*given))[1])
    changes = (NeighbourhoodChange(at=50, topology="ring"),)
    for options, times in ((GridOptions(shape="64x64"), 1), (GridOptions(shape="64x64", changes=changes), 2)):
        calls.clear()
        ends = SimulatedGrid(costs(options), cluster(1024, LINK)).run(200)
        assert len(calls) == times and len(ends) == 200
    assert np.diff(ends)[-1] != pytest.approx(np.diff(ends)[10])  # the ring has other routes


def test_grid_of_constant_cost_gains_nothing_from_more_workers():
    found = forecast_grid(costs(train_s=constant(1.0)), cluster(4), STRONG)
    assert found.efficiency == pytest.approx(0.25, rel=0.02)
