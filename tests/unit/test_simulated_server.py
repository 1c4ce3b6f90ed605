"""Simulated parameter server: formulas of small cases, and a plain event loop of the same messages."""

from __future__ import annotations

import heapq
import itertools
from collections import deque

import numpy as np
import pytest

from paragan.core.types import Side
from paragan.scaling.cluster import Cluster, Interconnect, Link, Unevenness
from paragan.scaling.forecast import Goal, forecast
from paragan.scaling.simulated_server import SharedLink
from paragan.scaling.simulation import SimulatedTime
from paragan.schemes import parameter_server
from tests.simulated_workers import FREE, cluster, game

D_BYTES, G_BYTES = 2_000_000, 4_000_000  # of the players of `game`
SPEED = 1e8  # bytes per second
D_S, G_S = D_BYTES / SPEED, G_BYTES / SPEED


def served(staleness=1, **costs):
    return game(parameter_server.Scheme(parameter_server.Options(staleness)), **costs)


def mean_step(game, cluster, steps=80):
    return float(np.diff(SimulatedTime(game, cluster).run(steps))[20:].mean())


@pytest.mark.parametrize("workers", [1, 4])
def test_without_delay_the_step_adds_the_messages_of_all_workers(workers):
    """The answers to one player's turn leave one by one, while the first workers compute the other's turn."""
    found = mean_step(served(0), cluster(workers + 1, Link(0.0, SPEED)))
    gap = max(workers * G_S + D_S, workers * D_S + G_S)
    assert found == pytest.approx(0.18 + 2 * gap)


@pytest.mark.parametrize("latency_s", [0.01, 0.5])
@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_turn_waits_for_the_answer_to_the_turn_that_the_bound_names(staleness, latency_s):
    """Of two turns a step, 2 S + 1 are made in the time of one and its answer."""
    found = mean_step(served(staleness, g_s=0.09, d_s=0.09), cluster(4, Link(latency_s, float("inf"))), 201)
    assert found == pytest.approx(max(0.18, 2 * (0.09 + 2 * latency_s) / (2 * staleness + 1)), rel=0.01)


def test_one_rank_is_the_synchronous_step():
    costs = {"generate_s": 0.02, "load_s": 0.01, "between_s": 0.005, "d_updates": 2}
    assert mean_step(served(**costs), cluster(1)) == pytest.approx(mean_step(game(**costs), cluster(1)))


def test_fast_network_leaves_the_work_of_a_worker():
    costs = {"generate_s": 0.02, "load_s": 0.01, "between_s": 0.005, "d_updates": 2}
    assert mean_step(served(1, **costs), cluster(5, FREE)) == pytest.approx(0.1 + 2 * 0.11 + 0.005)


@pytest.mark.parametrize("staleness", [0, 1, 5])
@pytest.mark.parametrize(("workers", "speed"), [(1, 1e6), (8, 1e8), (100, 1e9), (1000, 1e10)])
def test_step_takes_at_least_the_time_of_the_link_of_the_server(staleness, workers, speed):
    uneven = cluster(workers + 1, Link(1e-4, speed), unevenness=Unevenness(jitter=0.1))
    least = workers * (D_BYTES + G_BYTES) / speed  # in either direction
    steps = 200
    ends = SimulatedTime(served(staleness, batch=1000), uneven).run(steps)
    assert ends[-1] >= (steps - 1) * least
    assert ends[-1] / steps <= 0.18 * 1.6 + 2.5 * least + 0.02


def test_workers_on_the_host_of_the_server_use_the_link_inside():
    inside = Link(0.0, 1e12)
    near = Cluster(4, Interconnect(inside, Link(1.0, 1e3), workers_per_host=4))
    assert mean_step(served(0), near) == pytest.approx(0.18, rel=1e-3)
    assert mean_step(served(0), near.with_workers(5)) > 1000


def test_bytes_are_a_gradient_and_a_state_for_each_turn_of_each_worker():
    time = SimulatedTime(served(1, d_updates=2), cluster(4, Link(0.0, SPEED)))
    time.run(10)
    assert time.bytes == {"parameters": 10 * 3 * 2 * (2 * D_BYTES + G_BYTES)}


def test_staleness_absorbs_jitter():
    uneven = cluster(17, unevenness=Unevenness(jitter=0.2))
    waits = [mean_step(served(staleness, batch=64), uneven, 400) for staleness in (0, 1, 4)]
    assert waits[0] > 1.1 * waits[1] > 1.02 * waits[2]


def test_workers_share_the_batch_without_the_server():
    time = SimulatedTime(served(batch=9), cluster(4))
    assert time._rows[Side.D].tolist() == [3, 3, 3]
    found = forecast(served(), cluster(4), Goal(1000), num_steps=40)
    assert found.losses["imbalance"] == pytest.approx(0) and found.images_per_s == pytest.approx(4 * 64 / 0.18)


def test_messages_of_a_slow_worker_do_not_hold_up_those_that_were_ready():
    link = SharedLink()
    first = link.transfer(np.array([0.0, 10.0]), np.ones(2))
    second = link.transfer(np.array([2.0, 12.0]), np.ones(2))
    third = link.transfer(np.array([2.5, 12.5]), np.ones(2))
    assert (first.tolist(), second.tolist(), third.tolist()) == ([1.0, 11.0], [3.0, 13.0], [4.0, 14.0])


@pytest.mark.parametrize("staleness", [0, 1, 3])
@pytest.mark.parametrize(("link", "tolerance"), [(Link(0.03, float("inf")), 1e-9), (Link(0.01, 4e8), 0.01)])
@pytest.mark.parametrize("k", [1, 2])
def test_simulation_follows_an_event_loop(staleness, link, tolerance, k):
    workers, steps = 5, 60
    uneven = cluster(workers + 1, link, unevenness=Unevenness(jitter=0.3))
    time = SimulatedTime(served(staleness, d_updates=k, batch=60), uneven)
    work = {Side.D: [], Side.G: []}
    compute = time.compute

    def recorded(side):
        before = time._now[1:].copy()
        compute(side)
        work[side].append(time._now[1:] - before)

    time.compute = recorded
    found = time.run(steps)
    expected = event_loop(work, link, staleness, k, steps)
    assert found[-1] == pytest.approx(expected, rel=tolerance)


def event_loop(work, link: Link, staleness: int, k: int, steps: int) -> float:
    """Time at which rank 0 has the last gradients: the messages of `server.py` and `worker.py`, one by one."""
    num = len(work[Side.D][0])
    turns = [Side.D] * k + [Side.G]
    per_step = {Side.D: k, Side.G: 1}
    seconds = {Side.D: D_BYTES / link.bytes_per_s, Side.G: G_BYTES / link.bytes_per_s}
    made = [dict.fromkeys(Side, 0) for _ in range(num)]
    known = [dict.fromkeys(Side, 0) for _ in range(num)]
    applied = {side: [0] * num for side in Side}
    plans = [deque(turns * steps) for _ in range(num)]
    is_busy = [False] * num
    unanswered, end, number = [], 0.0, itertools.count()
    free = {"up": 0.0, "down": 0.0}
    events = [(0.0, next(number), "try", i, None, 0) for i in range(num)]

    def send(way, now, what, i, side, note):
        free[way] = max(free[way], now) + seconds[side]
        heapq.heappush(events, (free[way] + link.latency_s, next(number), what, i, side, note))

    while events:
        now, _, what, i, side, note = heapq.heappop(events)
        if what == "done":
            is_busy[i] = False
            made[i][side] += 1
            send("up", now, "gradients", i, side, 0)
        if what == "weights":
            known[i][side] = note
        if what == "gradients":
            end = now
            applied[side][i] += 1
            unanswered.append((i, side, applied[side][i]))
            for item in list(unanswered):
                j, other, turn = item
                if min(applied[other]) >= turn - staleness * per_step[other]:
                    unanswered.remove(item)
                    send("down", now, "weights", j, other, min(applied[other]))
            continue
        required = {s: made[i][s] - staleness * per_step[s] for s in Side}
        if not is_busy[i] and plans[i] and all(known[i][s] >= required[s] for s in Side):
            turn = plans[i].popleft()
            is_busy[i] = True
            heapq.heappush(events, (now + work[turn][made[i][turn]][i], next(number), "done", i, turn, 0))
    return end
