"""The workers that a coordinator knows: which are late, which have failed, and what follows."""

import os
import queue
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from paragan.core.errors import RankError
from paragan.extensions.grid.build.coordinator import _CoordinatorServer
from paragan.extensions.grid.workers import membership as membership_module
from paragan.extensions.grid.workers.handshake import has_ended, reported_error, worker_info
from paragan.extensions.grid.workers.membership import FailedWorker, Membership
from tests.extensions.grid.threaded_grid import Line

HEARTBEAT_S = 1.0


def line_of(**about):
    """The line of a worker that says what the test lets it say."""
    return Line(queue.Queue(), queue.Queue(), about)


class Clock:
    """Instead of `time`, for the membership alone."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(membership_module, "time", found := Clock())
    return found


@pytest.fixture
def begun(clock):
    """Makes a membership with workers that take part; `said` is what the user reads."""
    made = []

    def begin(*lines, is_recoverable=True, timeout_s=60.0):
        waiting, said = queue.SimpleQueue(), []
        for line in lines:
            waiting.put(line)
        accept = lambda: None if waiting.empty() else waiting.get()  # noqa: E731
        found = Membership(
            accept=accept, log=said.append, heartbeat_s=HEARTBEAT_S, timeout_s=timeout_s, is_recoverable=is_recoverable
        )
        made.append(found)
        found.admit()
        for rank, member in enumerate(found.members):
            member.rank = rank
        found.is_stale = found.must_repeat = False
        return found, said

    yield begin
    for found in made:
        found.close()


def pass_time(membership, clock, seconds, beating):
    """Look ten times a second; `beating` workers beat once a second."""
    for look in range(round(seconds * 10)):
        clock.now += 0.1
        if look % 10 == 0:
            [line.coming.put({"kind": "beat", "progress": clock.now}) for line in beating]
        membership.poll()


def test_a_late_worker_is_reported_once_and_retains_its_place(begun, clock):
    late, other = line_of(host="a"), line_of(host="b")
    membership, said = begun(late, other)
    pass_time(membership, clock, 5, [late, other])
    pass_time(membership, clock, 8, [other])
    assert [text.split(": no heartbeat")[0] for text in said] == ["workers   worker 1 (a) is late"]
    assert said[0].endswith("(fails at 10.0 s)")
    assert len(membership.active) == 2 and not membership.is_stale and not membership.must_repeat
    pass_time(membership, clock, 5, [late, other])
    assert said[1:] == ["workers   worker 1 (a) responds again"]


def test_a_silent_worker_fails_after_ten_heartbeats(begun, clock):
    silent, other = line_of(host="a"), line_of(host="b")
    membership, said = begun(silent, other)
    pass_time(membership, clock, 9.5, [other])
    assert len(membership.active) == 2
    pass_time(membership, clock, 2, [other])
    assert [member.name for member in membership.active] == ["worker 2 (b)"]
    assert said[-1].startswith("workers   worker 1 (a) failed: no heartbeat for 10.") and membership.must_repeat


def test_a_worker_whose_connection_breaks_fails_at_once(begun, clock):
    line, other = line_of(host="a"), line_of(host="b")
    membership, said = begun(line, other)
    line.disconnect_reason = "the other end closed the connection"
    membership.poll()
    assert said == ["workers   worker 1 (a) failed: the other end closed the connection"]


def test_a_worker_whose_process_has_ended_fails_before_its_silence_is_long(begun, clock):
    """A process that it forked may hold its connection open."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    ended, lives = line_of(**{**worker_info("cpu"), "pid": process.pid}), line_of(**worker_info("cpu"))
    membership, said = begun(ended, lives)
    pass_time(membership, clock, 3, [])
    assert [text for text in said if "failed" in text] == [
        f"workers   worker 1 ({socket.gethostname()}) failed: its process has ended"
    ]
    assert len(membership.active) == 1


@pytest.mark.parametrize("elsewhere", [{"host": "another"}, {"pid_namespace": "pid:[1]"}, {"pid_namespace": ""}])
def test_a_process_of_another_host_or_container_is_not_looked_up(elsewhere):
    ended = 1 << 30
    assert has_ended({**worker_info("cpu"), "pid": ended})
    assert not has_ended({**worker_info("cpu"), "pid": os.getpid()})
    assert not has_ended({**worker_info("cpu"), "pid": ended, **elsewhere})


@pytest.mark.parametrize("elsewhere", [{}, {"host": "another"}, {"pid_namespace": "pid:[1]"}])
def test_a_worker_of_another_host_with_the_pid_of_a_local_one_kills_no_process(elsewhere):
    killed = []
    processes = SimpleNamespace(running=[SimpleNamespace(pid=os.getpid())], kill=killed.extend)
    _CoordinatorServer._kill(SimpleNamespace(processes=processes), {**worker_info("cpu"), **elsewhere})
    assert killed == ([] if elsewhere else processes.running)


def test_a_failure_over_mpi_ends_the_run_wherever_it_is_noticed(begun, clock):
    """A communicator that waits for data turns it into an error like any other, after which others take over."""
    line, other = line_of(host="a"), line_of(host="b")
    membership, _ = begun(line, other, is_recoverable=False)
    line.disconnect_reason = "the other end closed the connection"
    with pytest.raises(RankError, match=r"worker 1 \(a\) failed \(the other end closed the connection\), which ends"):
        membership.check_failed()
    with pytest.raises(RankError, match=r"worker 1 \(a\) failed"):
        membership.raise_failure()


def test_a_failure_elsewhere_is_taken_over_by_the_others(begun, clock):
    line, other = line_of(host="a"), line_of(host="b")
    membership, _ = begun(line, other)
    line.disconnect_reason = "the other end closed the connection"
    assert membership.check_failed()
    with pytest.raises(FailedWorker):
        membership.raise_failure()


@pytest.mark.parametrize("values", [{}, {"reason": ["x"], "code": "two"}, {"code": float("inf")}, {"code": 10**400}])
def test_reported_error_of_an_invalid_message_is_a_line_with_exit_code_1(values):
    error = reported_error("worker 1", {"kind": "failed", **values})
    assert error.exit_code == 1 and str(error).startswith("worker 1: ")
    assert reported_error("worker 1", {"reason": "no memory", "code": 2}).exit_code == 2


@pytest.mark.parametrize("pid", [None, "12", -1, 0, 1 << 70, 1.5])
def test_process_with_an_invalid_id_has_not_ended(pid):
    assert not has_ended({**worker_info("cpu"), "pid": pid})
