"""Heartbeats: sent while the training thread is busy, and by a process that is stopped no more."""

import queue
import threading
import time
from pathlib import Path

from paragan.core.errors import RankError
from paragan.extensions.grid.transports.heartbeat import PeriodicHeartbeat, WorkerState, WorkerStatus

TOKEN = "5e" * 32
WAIT_S = 20.0
SOURCES = Path(__file__).resolve().parents[3] / "src"


class Post:
    """Takes beats, as a line would."""

    def __init__(self) -> None:
        self.sent: queue.Queue = queue.Queue()

    def send(self, kind, **values):
        self.sent.put({"kind": kind, **values})

    def next(self):
        return self.sent.get(timeout=WAIT_S)


def test_heartbeats_carry_the_present_state():
    post, status = Post(), WorkerStatus()
    status.state = WorkerState.PROCESSING
    beats = PeriodicHeartbeat(post.send, 0.01, status)
    assert post.next() == {"kind": "beat", "state": "processing", "progress": 0}
    status.state = WorkerState.FINISHED
    status.progress += 1
    assert next(n for n in range(1000) if post.next() == {"kind": "beat", "state": "finished", "progress": 1}) < WAIT_S
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
    assert not any(thread.name == "heartbeats" for thread in set(threading.enumerate()) - before)


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
    assert capfd.readouterr().err == ""
