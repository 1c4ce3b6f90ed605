"""Stopping on request, with real signals in a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import paragan
from paragan.core import interrupt
from tests.processes import running

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(paragan.__file__).parents[1])}

LOOP = """
import sys, time
from paragan.core.interrupt import install
with install() as stop:
    print("ready", flush=True)
    while not stop.requested:
        time.sleep(0.01)
    print("torch" in sys.modules, flush=True)
    sys.stdin.readline()
print("left", flush=True)
"""


@pytest.fixture
def loop():
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with running([sys.executable, "-c", LOOP], env=ENVIRONMENT, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_says_so(loop, number):
    loop.send_signal(number)
    assert loop.stdout.readline() == "False\n"
    out, error = loop.communicate("\n", timeout=30)
    assert (out, error, loop.returncode) == ("left\n", "stopping after this step; again to abort\n", 0)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_after_that_aborts_at_once(loop, first):
    loop.send_signal(first)
    loop.stdout.readline()
    loop.send_signal(signal.SIGINT)
    out, _ = loop.communicate(timeout=30)
    assert (out, loop.returncode) == ("", -signal.SIGINT)


def test_a_scheduler_may_ask_twice(loop):
    for _ in range(2):
        loop.send_signal(signal.SIGTERM)
    loop.stdout.readline()
    loop.send_signal(signal.SIGTERM)
    out, error = loop.communicate("\n", timeout=30)
    assert (out, error.count("stopping"), loop.returncode) == ("left\n", 1, 0)


def test_leaving_gives_the_signals_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interrupt.install() as stop:
        assert not stop.requested
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_only_the_main_thread_may_install():
    raised = []

    def install():
        try:
            interrupt.install()
        except ValueError as error:
            raised.append(error)

    thread = threading.Thread(target=install)
    thread.start()
    thread.join(10)
    assert len(raised) == 1
