"""Bytes on links of collectives, and the record of what ranks send."""

import pytest
import torch

from paragan.core.dist import Collective, World, link_bytes
from paragan.engine.step_log import TrafficLog
from paragan.parallel import local_sgd
from paragan.report.record import History
from paragan.report.record_values import RecordEntry


def ring_all_reduce(num_ranks: int, num_pieces: int) -> int:
    """Pieces that all ranks send while each of them passes on what it has just added or received."""
    held = [[rank + 1] * num_pieces for rank in range(num_ranks)]
    sent = 0
    for step in range(2 * (num_ranks - 1)):
        before = [list(pieces) for pieces in held]
        for rank in range(num_ranks):
            piece = (rank - step) % num_ranks
            value, target = before[rank][piece], (rank + 1) % num_ranks
            held[target][piece] = before[target][piece] + value if step < num_ranks - 1 else value
            sent += 1
    assert all(pieces == [num_ranks * (num_ranks + 1) // 2] * num_pieces for pieces in held)
    return sent


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 7])
def test_link_bytes_of_an_all_reduce_are_those_of_a_ring(num_ranks):
    pieces = ring_all_reduce(num_ranks, num_ranks)
    of_all = num_ranks * link_bytes(Collective.ALL_REDUCE, num_ranks, num_ranks)
    assert of_all == pytest.approx(pieces) == pytest.approx(2 * (num_ranks - 1) * num_ranks)
    halves = (
        link_bytes(Collective.REDUCE_SCATTER, num_ranks, num_ranks),
        link_bytes(Collective.ALL_GATHER, 1, num_ranks),
    )
    assert sum(halves) * num_ranks == pytest.approx(pieces)


def test_link_bytes_of_a_broadcast_reach_every_other_rank():
    assert 4 * link_bytes(Collective.BROADCAST, 10, 4) == pytest.approx(30)
    assert link_bytes(Collective.LINK, 10, 4) == 10
    assert all(link_bytes(collective, 10, 1) == 0 for collective in Collective if collective is not Collective.LINK)


def test_a_world_counts_by_kind_what_is_passed_and_what_travels():
    world = World(size=4)
    world.count("parameters", torch.zeros(10), torch.zeros(2, dtype=torch.float64))
    world.count("parameters", torch.zeros(3), collective=Collective.ALL_GATHER)
    world.count("norm", torch.zeros(4), num_ranks=2)
    world.count_bytes("states", 7, Collective.LINK)
    assert world.sent == {"parameters": 56 + 12, "norm": 16, "states": 7}
    assert world.on_links == {"parameters": 56 * 1.5 + 36, "norm": 16, "states": 7}


class PairWorld(World):
    """The first of two ranks that send the same."""

    def gather(self, value):
        return [value, value]


def test_traffic_is_recorded_per_step_of_all_ranks_since_the_last_read():
    world = PairWorld(size=2)
    world.count_bytes("parameters", 1000)
    log = TrafficLog(world)
    assert log.read(0) == {}
    for _ in range(4):
        world.count_bytes("parameters", 10)
        world.count_bytes("fakes", 6, Collective.LINK)
    expected = {"fakes": 12.0, "parameters": 20.0}
    assert log.read(4) == {"steps": 4, "sent": expected, "links": expected}
    assert log.read(1) == {"steps": 1, "sent": {}, "links": {}}
    assert TrafficLog(World()).read(1) == {}


def test_the_report_has_a_curve_of_bytes_by_kind():
    history = History()
    for step in (10, 20):
        values = {"steps": 10, "sent": {"fakes": 1.0}, "links": {"fakes": 2.0 * step, "odd": "text"}}
        history.add("traffic", RecordEntry(step=step, kimg=0.1, values=values))
    history.add("traffic", RecordEntry(step=30, kimg=0.1, values={"links": "none"}))
    assert list(history.series) == ["links/fakes"]


@pytest.mark.parametrize(
    ("options", "period"), [({}, 2), ({"every": 3}, 66), ({"every": 2}, 64), ({"every": 100}, 100)]
)
def test_ranks_are_equal_again_after_the_averaging_of_weights(options, period):
    gradients = {"synchronize": "gradients"} if options else {}
    strategy = local_sgd.Strategy(local_sgd.Options(**options, **gradients))
    assert strategy.sync_period == period
