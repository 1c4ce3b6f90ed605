"""A coordinator and its workers in one process: lines are queues, workers are threads."""

import queue
import threading
import time

import pytest

from paragan.core.errors import ParaganError
from paragan.extensions.grid.transports.heartbeat import PeriodicHeartbeat, WorkerStatus
from paragan.extensions.grid.workers.worker import Worker
from tests.extensions.grid.threaded_grid import WAIT_S, Grid, Line, alone


@pytest.fixture
def begun(tmp_path):
    """Makes grids, and ends them."""
    found = []

    def begin(*words, **settings):
        found.append(Grid(tmp_path, *words, **settings))
        return found[-1]

    yield begin
    for grid in found:
        grid.coordinator.end()
        for worker in grid.workers:
            worker.connection.begin_close()  # failed and never admitted workers would wait for their time-out
        for thread in grid.threads:
            thread.join(10)
        for beats in grid.beats:
            beats.close()


def test_end_closes_all_workers_together(begun):
    grid = begun()
    grid.evolve(2)
    grid.coordinator.end()
    for thread in grid.threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in grid.threads)
    assert not [text for text in grid.said if "failed" in text]


def test_worker_with_heartbeats_but_no_progress_fails(begun, tmp_path):
    over, stuck = threading.Event(), threading.Event()

    def hang():
        if not stuck.is_set():
            stuck.set()
            over.wait(WAIT_S)

    grid = begun(workers=2, timeout_s=1.5, hooks={1: hang})
    try:
        grid.evolve(2)
    finally:
        over.set()
    assert any("made no progress for 1.5 s" in text for text in grid.said)
    assert grid.genomes() == alone(tmp_path / "alone", 2)


def test_worker_of_a_silent_coordinator_ends_after_the_timeout(begun):
    grid = begun(workers=1)
    line = Line(queue.Queue(), queue.Queue())
    worker = Worker(
        connection=line,
        make_cell=grid.factory.cell,
        make_population=grid.factory.population,
        make_communicator=grid.make_communicator,
        status=WorkerStatus(),
        timeout_s=1.0,
    )
    assert worker.run() == "no message from the coordinator for 1 s"


def test_worker_of_an_idle_coordinator_continues(begun):
    grid = begun(workers=1, heartbeat_s=0.5, patience_s=2.0)
    grid.evolve(1)
    time.sleep(2.6)  # it scores, say
    grid.evolve(2)
    assert not [text for text in grid.said if "failed" in text]


def test_error_on_a_worker_ends_the_run_with_its_reason(begun):
    def fail():
        raise ParaganError("the disk is full")

    grid = begun(workers=2, hooks={0: fail})
    with pytest.raises(ParaganError, match=r"host 0\): the disk is full"):
        grid.evolve(1)


def test_late_worker_does_not_change_the_result(begun, tmp_path):
    """It sends nothing for several heartbeats, as on a busy machine, and computes all the same."""
    late = threading.Event()

    def delay():
        if not late.is_set():
            late.set()
            grid.beats[1].close()
            time.sleep(2.5)
            grid.beats.append(PeriodicHeartbeat(grid.workers[1].connection.send, 0.1, grid.workers[1].status))

    grid = begun(workers=2, heartbeat_s=0.5, hooks={1: delay})
    grid.evolve(2)
    assert [text for text in grid.said if "is late" in text] and not [text for text in grid.said if "failed" in text]
    assert grid.genomes() == alone(tmp_path / "alone", 2)


def test_worker_that_fails_while_cells_are_collected_changes_no_genome(begun, tmp_path):
    """Its cells of the last generation are on no other worker: they are repeated before the others are collected."""
    grid = begun(workers=3)
    grid.evolve(3)
    for line in (grid.coordinator.membership.members[1].connection, grid.workers[1].connection):
        line.disconnect_reason = "killed"
    states = grid.coordinator.collect()
    assert grid.said[-1].endswith("cells, from generation 2")
    assert {state.clock[0] for state in states.values()} == {6}
    assert grid.genomes() == alone(tmp_path / "alone", 3)


def test_worker_that_joins_later_gets_cells(begun, tmp_path):
    grid = begun(workers=1)
    grid.evolve(1)
    grid.add_worker()
    grid.evolve(3)
    assert "workers   2 with 2, 2 cells, from generation 1" in grid.said
    assert grid.genomes() == alone(tmp_path / "alone", 3)


def test_cells_move_to_faster_workers(begun, tmp_path):
    grid = begun("grid.batches=4", workers=2, hooks={1: lambda: time.sleep(0.2)})
    grid.evolve(5)
    assert any("with 3, 1 cells" in text for text in grid.said)
    assert grid.genomes() == alone(tmp_path / "alone", 5, "grid.batches=4")
