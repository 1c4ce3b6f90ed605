"""Communicators between processes: the same exchange whoever is slow, leaves, or sends too much."""

import importlib
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist

from paragan.core.errors import ConfigError
from paragan.extensions.grid.transports.communicator import WorkerError
from tests.distributed.cases_communicators import (
    GRAPHS,
    PATIENCE_S,
    fine,
    graph_of,
    link,
    linked_threads,
    play,
    together,
)

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_communicators"
ALL_PEERS = graph_of(2, [(0, 1)])
FAR_S = PATIENCE_S / 4  # far less than the time-out, far more than it takes


def message(value, length=3):
    return torch.full((length,), value, dtype=torch.uint8)


@pytest.fixture(autouse=True)
def loopback(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


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


def abort_all(comms):
    together(len(comms), lambda rank: comms[rank].abort())


def test_who_is_missing_is_named_after_the_time_out():
    comms = linked_threads(graph_of(4, [(0, 1), (0, 2), (0, 3)]), timeout_s=0.5)
    errors = together(3, lambda rank: rank == 1 or comms[rank].exchange({0: []} if rank else {1: [], 2: [], 3: []}))
    assert isinstance(errors[0], WorkerError) and errors[0].worker == 1
    assert str(errors[0]) == "workers 1, 3 did not answer within 0.5 s"
    abort_all(comms)


@pytest.mark.parametrize("wait", [lambda c: c.exchange({1: []}), lambda c: c.gather([])])
def test_who_is_stopped_waits_no_longer(wait):
    stopped = threading.Event()
    comms = linked_threads(ALL_PEERS, stopped=stopped.is_set)
    threading.Timer(0.3, stopped.set).start()
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"stopped after [\d.]+ s of waiting for worker 1"):
        wait(comms[0])
    assert time.monotonic() - began < FAR_S
    abort_all(comms)


def test_what_came_before_a_worker_left_is_taken():
    here, there = comms = linked_threads(ALL_PEERS)
    there._connections[0].send(1, [message(5)])
    thread = threading.Thread(target=there.abort)
    thread.start()
    assert here.exchange({1: []})[1][0].equal(message(5))
    with pytest.raises(WorkerError, match="worker 1 has left"):
        here.exchange({1: []})
    abort_all(comms)
    thread.join()


def test_mismatched_calls_raise():
    comms = linked_threads(ALL_PEERS, timeout_s=2.0)

    def do(rank):
        (comms[0].exchange({}), comms[0].exchange({1: []})) if rank == 0 else comms[1].exchange({0: []})

    first, second = together(2, do)
    assert str(first) == "worker 1 is at exchange 1, this worker at exchange 2; all workers must make the same calls"
    assert str(second) == "worker 0 is at exchange 2, this worker at exchange 1; all workers must make the same calls"
    abort_all(comms)
    comms = linked_threads(ALL_PEERS, timeout_s=2.0)
    first, _ = together(2, lambda rank: comms[0].gather([]) if rank == 0 else comms[1].exchange({0: []}))
    assert str(first).startswith("worker 1 is at exchange 1, this worker at gather 1")
    abort_all(comms)


def test_who_closed_is_an_error_only_where_more_is_expected():
    comms = linked_threads(ALL_PEERS, timeout_s=1.0)
    fine(together(2, lambda rank: time.sleep(0.2 * (1 - rank)) or comms[rank].close()))
    here, there = comms = linked_threads(ALL_PEERS, timeout_s=1.0)

    def do(rank):
        there.close() if rank else here.exchange({1: []})

    first, second = together(2, do)
    assert str(first) == "worker 1 has left" and "worker 0 did not answer" in str(second)
    abort_all(comms)  # after a `close` that failed, too


def test_missing_mpi4py_gives_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "paragan.extensions.grid.transports.mpi_communicator", raising=False)
    with pytest.raises(ConfigError, match=r"requires mpi4py; run .* -m pip install mpi4py mpich"):
        importlib.import_module("paragan.extensions.grid.transports.mpi_communicator")


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
