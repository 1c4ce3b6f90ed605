"""Communicators between processes: the same exchange whoever is slow, leaves, or sends too much."""

import threading
import time

import pytest
import torch
import torch.distributed as dist

from paragan.extensions.grid.transports.waiting import WorkerError
from tests.distributed.cases_communicators import GRAPHS, PATIENCE_S, fine, graph_of, link, play, together

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_communicators"
ALL_PEERS = graph_of(2, [(0, 1)])
FAR_S = PATIENCE_S / 4  # far less than the time-out, far more than it takes


def message(value, length=3):
    return torch.full((length,), value, dtype=torch.uint8)


@pytest.fixture(autouse=True)
def loopback(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def linked_threads(graph, **options):
    """The communicators of workers that are threads here, over gloo, by rank."""
    store = dist.HashStore()
    return fine(together(len(graph), lambda rank: link(store, rank, graph, **options)))


@pytest.mark.parametrize("graph", ["pair", "strangers"])
def test_two_processes_exchange_what_a_dictionary_holds(two_ranks, graph):
    two_ranks.run(f"{CASES}:equals", graph=graph, rounds=20)


@pytest.mark.parametrize("graph", ["ring 3", "star 3"])
def test_three_processes_exchange_what_a_dictionary_holds(three_ranks, graph):
    three_ranks.run(f"{CASES}:equals", graph=graph, rounds=20)


@pytest.mark.parametrize("graph", ["torus 2x2", "ring 4", "star 4", "any 4"])
def test_four_processes_exchange_what_a_dictionary_holds(four_ranks, graph):
    four_ranks.run(f"{CASES}:equals", graph=graph, rounds=20)


@pytest.mark.parametrize("graph", ["alone", "torus 2x3", "torus 3x3", "ring 5", "star 5", "any 6"])
def test_many_workers_exchange_what_a_dictionary_holds(graph):
    comms = linked_threads(GRAPHS[graph])
    fine(together(len(comms), lambda rank: play(comms[rank], GRAPHS[graph], rounds=12)))
    fine(together(len(comms), lambda rank: comms[rank].close()))


def test_a_message_that_is_too_large_gets_no_memory():
    store = dist.HashStore()
    most = (1 << 20, 10)
    here, there = fine(together(2, lambda rank: link(store, rank, ALL_PEERS, max_bytes=most[rank])))
    found = together(2, lambda rank: (here, there)[rank].exchange({1 - rank: [message(0, 11 if rank == 0 else 1)]}))
    assert isinstance(found[1], WorkerError) and found[1].worker == 0
    assert str(found[1]) == "worker 0 failed: it sends a message of 11 bytes; the limit is 10"
    [comm.abort() for comm in (here, there)]


def test_who_does_not_come_is_named_also_to_those_far_away():
    store, graph = dist.HashStore(), graph_of(4, [(1, 2), (2, 3)])
    for error in together(3, lambda rank: link(store, rank, graph, timeout_s=0.5)):
        assert isinstance(error, WorkerError) and str(error) == "worker 3 did not answer within 0.5 s"


def test_who_is_stopped_while_another_comes_waits_no_longer():
    """Also where the other was there, and died before its links stood."""
    for there in (False, True):
        store, began = dist.HashStore(), time.monotonic()
        if there:
            dist.PrefixStore("m", store).set("here/1", "")
        with pytest.raises(WorkerError, match=r"stopped after [\d.]+ s of waiting for worker 1"):
            link(store, 0, ALL_PEERS, stopped=lambda began=began: time.monotonic() > began + 0.3)
        assert time.monotonic() - began < FAR_S


def test_dropped_worker_reports_the_missing_worker():
    graph = graph_of(3, [(0, 1), (1, 2)])
    stopped = threading.Event()
    store = dist.HashStore()
    flags = {1: stopped.is_set}
    comms = fine(together(3, lambda rank: link(store, rank, graph, stopped=flags.get(rank, lambda: False))))

    def do(rank):
        if rank == 2:
            return time.sleep(0.3), stopped.set()
        with pytest.raises(WorkerError) as caught:
            comms[rank].exchange({rank + 1: []})
        comms[rank].abort()
        return str(caught.value), caught.value.worker

    assert fine(together(3, do))[0] == ("worker 1 has left because worker 2 failed", 2)
    comms[2].abort()


def test_a_drop_leaves_no_thread_that_waits_for_the_silent():
    """One that came back from gloo while Python ends would take the process with it."""
    before = set(threading.enumerate())

    def left():
        return [thread.name for thread in threading.enumerate() if thread not in before]

    here, there = linked_threads(ALL_PEERS)
    here.abort()  # the other end says nothing
    assert len(left()) <= 3
    there.abort()
    deadline = time.monotonic() + FAR_S
    while left() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left() == []
