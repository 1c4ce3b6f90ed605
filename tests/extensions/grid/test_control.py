"""The lines between a coordinator and its workers, over real sockets of this host. Who attacks them: next file."""

import errno
import os
import socket
import threading
import time
from contextlib import suppress

import pytest

from paragan.core.errors import ConfigError, RankError
from paragan.extensions.grid.transports import control, control_connection
from paragan.extensions.grid.transports.control import Listener, connect
from paragan.extensions.grid.transports.control_connection import ControlConnection

TOKEN = "5e" * 32
WAIT_S = 20.0


@pytest.fixture(autouse=True)
def nothing_is_left_over(capfd):
    before = set(threading.enumerate())
    yield
    assert until(lambda: set(threading.enumerate()) == before)
    assert capfd.readouterr().err == ""


@pytest.fixture
def listener():
    with_token = Listener(TOKEN)
    yield with_token
    with_token.close()


def meet(listener, **about):
    """Both ends of a new line: the worker's and the coordinator's."""
    worker = connect(TOKEN, *listener.address, WAIT_S, about)
    line = listener.accept(WAIT_S)
    assert line is not None and line.peer_info == about
    return worker, line


def until(condition):
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def end_of(line):
    return until(lambda: line.disconnect_reason)


def in_thread(call, *arguments):
    thread = threading.Thread(target=call, args=arguments)
    thread.start()
    return thread


def test_messages_and_offers_come_as_they_were_sent(listener):
    worker, line = meet(listener, host="käse", pid=7, cores=2, accelerators=[], code="ab" * 32)
    worker.send("told", cells=[1, 2], loss=0.25, deep={"a": [None, True, "ü"]})
    line.send("stop")
    assert line.receive(WAIT_S) == {"kind": "told", "cells": [1, 2], "loss": 0.25, "deep": {"a": [None, True, "ü"]}}
    assert worker.receive(WAIT_S) == {"kind": "stop"}
    assert worker.peer_info == {} and worker.disconnect_reason is None and line.disconnect_reason is None
    worker.close()


def test_both_directions_at_once_from_several_threads(listener):
    """More than the room of a line, and each of three threads of an end keeps its own order."""
    (worker, line), count, found = meet(listener), 200, {"worker": [], "line": []}

    def send(end, name):
        [end.send("n", name=name, n=n, filled="x" * 2000) for n in range(count)]

    def receive(end, name):
        while len(found[name]) < 3 * count and (message := end.receive(WAIT_S)) is not None:
            found[name].append((message["name"], message["n"]))

    threads = [in_thread(send, e, name) for e in (worker, line) for name in "abc"]
    threads += [in_thread(receive, e, n) for e, n in ((worker, "worker"), (line, "line"))]
    [thread.join(3 * WAIT_S) for thread in threads]
    for got in found.values():
        assert all([n for who, n in got if who == name] == list(range(count)) for name in "abc")
    worker.close()


def test_the_last_message_arrives_whatever_the_sender_leaves_unread(listener, monkeypatch):
    """More than the other end takes for now, which goes on sending: to close at once would take it back."""
    monkeypatch.setattr(control_connection, "LINGER_S", WAIT_S)
    listener._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    (worker, line), count = meet(listener), 300
    worker._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
    [worker.send("result", n=n, filled="x" * 5000 * (n > 256)) for n in range(count)]
    closing = in_thread(worker.close)
    with suppress(RankError):
        [(line.send("unread"), time.sleep(0.02)) for _ in range(10)]
    assert [message["n"] for _ in range(count) if (message := line.receive(WAIT_S))] == list(range(count))
    closing.join(WAIT_S)
    assert line.receive(WAIT_S) is None and worker.receive(0.0) is None
    assert line.disconnect_reason == f"{line.peer_address}: the other end closed the connection"


def test_a_message_that_cannot_be_sent_leaves_the_line_as_it_was(listener):
    worker, line = meet(listener)
    for bad in (float("nan"), {1}, "x" * (1 << 20)):
        with pytest.raises(ValueError, match=r"not a JSON object|the limit is"):
            worker.send("told", value=bad)
    worker.send("told", value=1)
    assert line.receive(WAIT_S)["value"] == 1
    worker.close()


def test_waits_end_at_their_time_out(listener, monkeypatch):
    worker, line = meet(listener)
    for wait_s in (0.0, 0.2):
        began = time.monotonic()
        assert line.receive(wait_s) is None and listener.accept(wait_s) is None
        assert time.monotonic() - began < WAIT_S
    monkeypatch.setattr(control_connection, "SEND_S", 0.2)
    with worker._sending, pytest.raises(RankError, match=r"took no message within 0\.2 s"):  # another thread's turn
        worker.send("told")
    assert worker.disconnect_reason is None
    worker.close()


def test_sender_without_a_receiver_raises_at_the_time_out(listener, monkeypatch):
    """Memory is bounded: what nobody takes stays with the one who sends."""
    monkeypatch.setattr(control, "_ATTEMPT_S", 5 * WAIT_S)
    monkeypatch.setattr(control_connection, "SEND_S", 0.5)
    worker = connect(TOKEN, *listener.address, 5 * WAIT_S, {})
    line = listener.accept(WAIT_S)
    began = time.monotonic()
    with pytest.raises(RankError, match=r"took no message within 0\.5 s"):
        [worker.send("n", n=n, filled="x" * 100_000) for n in range(2000)]
    assert time.monotonic() - began < 2 * WAIT_S and len(line._queue) == 256
    line._end("over")  # its reader waits for room
    assert until(lambda: not line._thread.is_alive()) and len(line._queue) == 256
    assert "took no message" in worker.disconnect_reason and line.receive(WAIT_S)["n"] == 0
    worker.close()


def test_a_close_wakes_all_who_wait_and_may_be_repeated(listener):
    (worker, line), got, began = meet(listener), [], time.monotonic()
    receiving = in_thread(lambda: got.append(worker.receive(10 * WAIT_S)))
    [worker.close() for _ in range(3)]
    receiving.join(WAIT_S)
    assert (
        got == [None] and worker.disconnect_reason.endswith("closed by this end") and time.monotonic() - began < WAIT_S
    )
    assert end_of(line) == f"{line.peer_address}: the other end closed the connection"
    [line.close() for _ in range(2)]
    with pytest.raises(RankError, match="closed"):
        worker.send("more")


def test_a_coordinator_may_come_later_and_to_the_same_port(listener):
    listener.close()
    worker: list = []
    waiting = in_thread(lambda: worker.append(connect(TOKEN, *listener.address, WAIT_S, {"pid": 1})))
    time.sleep(0.3)
    again = Listener(TOKEN, port=listener.address[1])
    assert again.accept(WAIT_S).peer_info == {"pid": 1}
    waiting.join(WAIT_S)
    [end.close() for end in (*worker, again)]


def test_missing_coordinator_raises_at_the_time_out(listener):
    listener.close()
    began = time.monotonic()
    with pytest.raises(
        RankError, match=r"accepted this worker within 0\.2 s \(127\.0\.0\.1:\d+: Connection refused\); check"
    ):
        connect(TOKEN, *listener.address, 0.2, {})
    assert time.monotonic() - began < WAIT_S


def test_what_cannot_become_better_is_not_tried_again(listener):
    with pytest.raises(ValueError, match="the limit is 4096"):
        connect(TOKEN, *listener.address, WAIT_S, {"filled": "x" * 5000})
    for port in (-1, 0, 65_536):
        with pytest.raises(ConfigError, match=f"no process can listen on port {port}; use .* 1 to 65535"):
            connect(TOKEN, "127.0.0.1", port, WAIT_S, {})
    for begin in (lambda: Listener("short"), lambda: connect("short", *listener.address, WAIT_S, {})):
        with pytest.raises(ConfigError, match="the token has 5 characters"):
            begin()


def test_a_busy_port_is_one_line(listener):
    host, port = listener.address
    with pytest.raises(ConfigError) as raised:
        Listener(TOKEN, port=port)
    reason = f"cannot listen on {host}:{port} ({os.strerror(errno.EADDRINUSE)})"
    assert str(raised.value) == f"{reason}; end the process that uses it, or choose port 0 for any free port"


@pytest.mark.parametrize(
    ("host", "port"), [("", 0), ("127.0.0.1", 65_536), ("127.0.0.1", -1), ("192.0.2.1", 0), ("a" * 80, 0)]
)
def test_a_place_that_is_none_is_one_line(host, port):
    with pytest.raises(ConfigError, match=f"^cannot listen on {host}:{port} .*any free port$"):
        Listener(TOKEN, host=host, port=port)


def test_the_loopback_alone_unless_another_host_is_named(listener):
    assert listener.address[0] == "127.0.0.1"
    (everywhere := Listener(TOKEN, host="0.0.0.0")).close()
    assert everywhere.address[0] == "0.0.0.0"


def test_a_listener_that_runs_out_of_files_or_threads_goes_on(listener, monkeypatch):
    server, start, troubles = listener._server, ControlConnection.start, [RuntimeError("can't start new thread")]

    class OutOfFiles:
        def __getattr__(self, name):
            listener._server = server
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def out_of_threads(self, run):
        if troubles and threading.current_thread() is listener._thread:
            raise troubles.pop()
        start(self, run)

    worker, line = meet(listener)
    listener._server = OutOfFiles()
    monkeypatch.setattr(control, "_ATTEMPT_S", WAIT_S)  # who is not taken is told so, and need not wait
    monkeypatch.setattr(ControlConnection, "start", out_of_threads)
    second, _ = meet(listener, pid=2)
    reasons = {line.partition("cannot accept ")[2] for line in listener.refused}
    assert reasons == {"(Too many open files)", "(can't start new thread)"}
    worker.send("told")
    assert line.receive(WAIT_S) == {"kind": "told"}
    [end.close() for end in (worker, second)]
