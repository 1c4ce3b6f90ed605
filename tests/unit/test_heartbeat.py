"""Heartbeats: sent while the training thread is busy, and by a process that is stopped no more."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from paragan.core.errors import RankError
from paragan.distributed.transports import control
from paragan.distributed.transports.control import Listener, connect
from paragan.distributed.transports.failure_detector import FailureDetector
from paragan.distributed.transports.heartbeat import PeriodicHeartbeat, WorkerState, WorkerStatus

TOKEN = "5e" * 32
WAIT_S = 20.0
SOURCES = Path(__file__).resolve().parents[2] / "src"


class Post:
    """Takes beats, as a line would."""

    def __init__(self) -> None:
        self.sent: queue.Queue = queue.Queue()

    def send(self, kind, **values):
        self.sent.put({"kind": kind, **values})

    def next(self):
        return self.sent.get(timeout=WAIT_S)


def test_beats_carry_a_counter_and_what_the_worker_is_at():
    post, status = Post(), WorkerStatus()
    status.set_state(WorkerState.PROCESSING)
    status.set_generation(7, 1.5)
    beats = PeriodicHeartbeat(post.send, 0.01, status)
    told = {"kind": "beat", "state": "processing", "generation": 7, "generation_s": 1.5, "progress": 0}
    assert [post.next() for _ in range(3)] == [told | {"count": n} for n in range(3)]
    status.set_state(WorkerState.FINISHED)
    assert next(n for n in range(1000) if post.next()["state"] == "finished") < WAIT_S
    beats.close()


def test_beats_go_on_while_the_thread_that_trains_computes():
    """Pure Python that never waits: the interpreter hands over by itself."""
    post = Post()
    beats = PeriodicHeartbeat(post.send, 0.01, dict)
    deadline = time.monotonic() + WAIT_S
    while post.sent.qsize() < 5 and time.monotonic() < deadline:
        sum(range(1000))
    beats.close()
    assert post.sent.qsize() >= 5


def test_no_beat_follows_a_close_and_no_thread_is_left():
    before, post = set(threading.enumerate()), Post()
    beats = PeriodicHeartbeat(post.send, 60.0, dict)
    post.next()
    began = time.monotonic()
    beats.close()
    beats.close()
    assert time.monotonic() - began < WAIT_S and post.sent.empty()
    assert not any(thread.name == "beats" for thread in set(threading.enumerate()) - before)
    assert beats.ended == "closed by this end"


def test_a_close_does_not_wait_for_ever_for_a_send():
    taken, free = threading.Event(), threading.Event()
    beats = PeriodicHeartbeat(lambda *_, **__: taken.set() or free.wait(WAIT_S), 60.0, dict)
    assert taken.wait(WAIT_S)
    began = time.monotonic()
    beats.close(wait_s=0.1)
    assert time.monotonic() - began < WAIT_S / 2
    free.set()
    beats.close()


def test_beats_end_with_their_line(capfd):
    def send(kind, **values):
        raise RankError("10.0.0.1:5: the other end closed the connection")

    beats = PeriodicHeartbeat(send, 0.01, dict)
    beats._thread.join(WAIT_S)
    assert not beats._thread.is_alive()
    assert beats.ended == "10.0.0.1:5: the other end closed the connection"
    assert capfd.readouterr().err == ""


def test_failing_state_is_reported_and_the_worker_continues(capfd):
    post = Post()
    beats = PeriodicHeartbeat(post.send, 0.01, lambda: 1 / 0)
    found = [post.next() for _ in range(2)]
    beats.close()
    assert found == [{"kind": "beat", "count": n, "trouble": "ZeroDivisionError: division by zero"} for n in range(2)]
    assert capfd.readouterr().err == ""


def test_unsendable_state_is_reported_and_the_worker_continues():
    post = Post()

    def send(kind, **values):
        if "loss" in values:
            raise ValueError("found nan, expected finite numbers")
        post.send(kind, **values)

    beats = PeriodicHeartbeat(send, 0.01, lambda: {"loss": float("nan")})
    told = {"kind": "beat", "trouble": "ValueError: found nan, expected finite numbers"}
    assert [post.next() for _ in range(2)] == [told | {"count": n} for n in range(2)]
    beats.close()


ALLOWED = {
    *(
        ("inactive", "processing"),
        ("inactive", "failed"),
        ("finished", "inactive"),
        ("finished", "processing"),
        ("finished", "failed"),
    ),
    *(("processing", "finished"), ("processing", "inactive"), ("processing", "failed")),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(WorkerState, WorkerState)))
def test_states_follow_one_another_as_allowed(before, after):
    if (before.value, after.value) in ALLOWED:
        assert before.transition_to(after) is after
    else:
        with pytest.raises(ValueError, match=f"found {after.value} after {before.value}, expected "):
            before.transition_to(after)


def test_a_status_keeps_its_state_where_another_may_not_follow():
    status = WorkerStatus()
    with pytest.raises(ValueError, match="found finished after inactive, expected processing or failed"):
        status.set_state(WorkerState.FINISHED)
    assert status()["state"] == "inactive"
    status.set_state(WorkerState.FAILED)
    with pytest.raises(ValueError, match="expected no other"):
        status.set_state(WorkerState.PROCESSING)


CHILD = """
import sys
from paragan.distributed.transports.control import connect
from paragan.distributed.transports.heartbeat import PeriodicHeartbeat, WorkerStatus
line = connect(sys.stdin.readline().strip(), "127.0.0.1", int(sys.argv[1]), 20.0, {})
PeriodicHeartbeat(line.send, 0.1, WorkerStatus())
while line.disconnect_reason is None:
    line.receive(0.5)
"""


@pytest.fixture
def child():
    """A listener, and the line of a worker in a process of its own that beats."""
    listener = Listener(TOKEN, send_s=0.5, hello_s=5 * WAIT_S)
    words = [sys.executable, "-c", CHILD, str(listener.address[1])]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SOURCES)})
    assert process.stdin is not None
    with process.stdin:
        process.stdin.write(TOKEN.encode() + b"\n")
    yield process, listener, listener.accept(3 * WAIT_S), lambda: connect(TOKEN, *listener.address, WAIT_S, {})
    listener.close()
    process.kill()
    process.wait(WAIT_S)


def test_a_stopped_worker_fails_and_holds_up_no_other(child):
    process, listener, line, another = child
    told = {"kind": "beat", "count": 0, "state": "inactive", "generation": 0, "generation_s": None, "progress": 0}
    assert line.receive(WAIT_S) == told
    worker, other = another(), listener.accept(WAIT_S)
    detector, names = FailureDetector(heartbeat_s=0.3, timeout_s=WAIT_S), {"stopped": line, "other": other}
    [detector.record_arrival(name, time.monotonic()) for name in names]
    beats = PeriodicHeartbeat(worker.send, 0.1, WorkerStatus())
    process.send_signal(signal.SIGSTOP)
    failed, deadline = [], time.monotonic() + 2 * WAIT_S
    while not failed and time.monotonic() < deadline:
        for name, end in names.items():
            while end.receive(0.02) is not None:
                detector.record_arrival(name, time.monotonic())
        found = detector.suspects(time.monotonic())
        failed = [name for name, silence in found.items() if silence.is_failure]
    assert failed == ["stopped"]

    waits = []
    with pytest.raises(RankError, match=r"took no message within 0\.5 s"):
        [(waits.append(time.monotonic()), line.send("order", filled="x" * 500_000)) for _ in range(200)]
    assert time.monotonic() - waits[-1] < WAIT_S / 2
    other.send("order")
    assert worker.receive(WAIT_S) == {"kind": "order"}
    beats.close()
    began = time.monotonic()
    listener.close()
    assert time.monotonic() - began < WAIT_S
    worker.close()


def test_a_line_itself_minds_no_silence(monkeypatch):
    """For three times the time in which a message must move, and hundreds in which a worker may come."""
    monkeypatch.setattr(control, "_LOOK_S", 0.001)
    listener = Listener(TOKEN, send_s=0.2)
    worker = connect(TOKEN, *listener.address, WAIT_S, {}, send_s=0.2)
    line = listener.accept(WAIT_S)
    time.sleep(0.7)
    line.send("order")
    worker.send("answer")
    assert (worker.receive(WAIT_S), line.receive(WAIT_S)) == ({"kind": "order"}, {"kind": "answer"})
    second = connect(TOKEN, *listener.address, WAIT_S, {})
    [end.close() for end in (worker, second, listener)]
