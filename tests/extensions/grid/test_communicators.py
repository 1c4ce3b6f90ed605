"""Communicators of one process, and what all forms promise."""

import importlib
import sys
import time

import pytest
import torch

from paragan.core.errors import ConfigError, RankError
from paragan.extensions.grid.transports.peer_connection import NO_FAILURE, MessageKind, PeerConnection
from paragan.extensions.grid.transports.waiting import WorkerError
from tests import thread_communicator
from tests.distributed.cases_communicators import GRAPHS, fine, graph_of, play, together

WAIT_S = 30.0


def message(value, length=3):
    return torch.full((length,), value, dtype=torch.uint8)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_what_arrives_is_what_a_dictionary_holds(graph):
    world = thread_communicator.create_communicators(len(graph), WAIT_S)
    fine(together(len(graph), lambda rank: play(world[rank], graph, rounds=20)))
    fine(together(len(graph), lambda rank: world[rank].close()))


def test_what_is_sent_is_not_copied():
    here, there = thread_communicator.create_communicators(2, WAIT_S)
    sent = message(1)
    _, found = fine(together(2, lambda rank: (here, there)[rank].exchange({1 - rank: [sent] if rank == 0 else []})))
    assert found[0][0].data_ptr() == sent.data_ptr()


def test_who_is_missing_is_named_after_the_time_out():
    world = thread_communicator.create_communicators(4, timeout_s=0.5)
    together(1, lambda _: world[2].exchange({0: []}))
    with pytest.raises(WorkerError, match=r"workers 1, 3 did not answer within 0\.5 s") as caught:
        world[0].exchange({1: [], 2: [], 3: []})
    assert caught.value.worker == 1 and isinstance(caught.value, RankError)


@pytest.mark.parametrize("wait", [lambda c: c.exchange({1: []}), lambda c: c.gather([])])
def test_who_is_stopped_waits_no_longer(wait):
    began = time.monotonic()
    comm = thread_communicator.create_communicators(2, WAIT_S, stopped=lambda: time.monotonic() > began + 0.3)[0]
    with pytest.raises(WorkerError, match=r"stopped after [\d.]+ s of waiting for worker 1"):
        wait(comm)
    assert time.monotonic() - began < WAIT_S / 5


def test_what_came_before_a_worker_left_is_taken():
    here, there = thread_communicator.create_communicators(2, WAIT_S)
    there._send(0, 1, [message(5)])
    there.abort()
    assert here.exchange({1: []})[1][0].equal(message(5))
    with pytest.raises(WorkerError, match="worker 1 has left"):
        here.exchange({1: []})


def test_mismatched_calls_raise():
    here, there = thread_communicator.create_communicators(2, 2.0)

    def do(rank):
        (here.exchange({}), here.exchange({1: []})) if rank == 0 else there.exchange({0: []})

    first, second = together(2, do)
    assert str(first) == "worker 1 is at exchange 1, this worker at exchange 2; all workers must make the same calls"
    assert str(second) == "worker 0 is at exchange 2, this worker at exchange 1; all workers must make the same calls"
    here, there = thread_communicator.create_communicators(2, 2.0)
    first, _ = together(2, lambda rank: here.gather([]) if rank == 0 else there.exchange({0: []}))
    assert str(first).startswith("worker 1 is at exchange 1, this worker at gather 1")


class Recorded(PeerConnection):
    """A way that keeps what goes."""

    def __init__(self):
        super().__init__(1, thread_communicator.create_communicators(2)[0]._arrivals)
        self.went = []

    def _put(self, kind, number, tensors):
        self.went.append((kind, [int(tensor[0]) for tensor in tensors]))


def test_nothing_follows_a_farewell():
    way = Recorded()
    way.send(MessageKind.CALL, 1, [message(0)])
    way.send(MessageKind.LEAVE, NO_FAILURE, [])
    way.send(MessageKind.CALL, 2, [message(1)])
    way.send(MessageKind.LEAVE, NO_FAILURE, [])
    assert way.went == [(MessageKind.CALL, [0]), (MessageKind.LEAVE, [])]


def test_who_closed_is_no_error_for_those_that_still_work():
    graph = graph_of(2, [(0, 1)])
    here, there = thread_communicator.create_communicators(len(graph), 1.0)

    def do(rank):
        if rank:
            return there.close()
        time.sleep(0.2)
        here.close()

    fine(together(2, do))
    with pytest.raises(WorkerError, match="worker 1 has left"):
        here.exchange({1: []})


def test_alone_all_is_here():
    (alone,) = thread_communicator.create_communicators(1)
    assert alone.exchange({}) == {}
    ((found,),) = alone.gather([message(3)])
    assert found.equal(message(3))
    alone.close()


def test_missing_mpi4py_gives_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "paragan.extensions.grid.transports.mpi_communicator", raising=False)
    with pytest.raises(ConfigError, match=r"requires mpi4py; run .* -m pip install mpi4py mpich"):
        importlib.import_module("paragan.extensions.grid.transports.mpi_communicator")
