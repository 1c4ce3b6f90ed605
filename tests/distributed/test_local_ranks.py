"""Runs on two ranks of this host: where they listen, who may use the folder, what a suspension costs."""

import json
import os
import signal

import pytest

from tests.distributed.test_launch import left, newest, train
from tests.processes import children, listeners, wait_for

pytestmark = pytest.mark.distributed


@pytest.mark.slow
def test_a_live_run_listens_on_the_loopback_interface_alone_and_refuses_a_second_start(tmp_path, started):
    """The second start, at the first sign of life of the first, changes nothing in the folder."""
    out, found = tmp_path / "run", set()
    started.append(process := train(out, "train.kimg=0.32", GLOO_SOCKET_IFNAME="eth0"))
    wait_for(lambda: (out / "run.lock").exists() and (out / "run.lock").read_text(), process)
    started.append(second := train(out, "train.kimg=0.32"))

    def observed(ended):
        found.update(listeners([process.pid, *children(process.pid)]))
        return ended.poll() is not None

    wait_for(lambda: observed(second))
    assert second.communicate(timeout=60)[1] == (
        f"run folder {out} is in use by process {process.pid}; wait for it, stop it, or give another --out DIR\n"
    )
    assert second.returncode == 2
    wait_for(lambda: observed(process))
    said, complaints = process.communicate(timeout=200)
    assert process.returncode == 0, said + complaints
    assert found == {"127.0.0.1"}  # gloo's own sockets
    assert json.loads((out / "exit.json").read_text())["code"] == 0
    assert {(end["code"], end["attempt"]) for end in left(out).values()} == {(0, 0)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("scheme.name=asynchronous", "devices=2"),
        ("scheme.name=parameter_server", "devices=3"),
        ("g.strategy=zero3", "d.strategy=zero3", "devices=2"),
    ],
)
def test_no_strategy_or_scheme_listens_beyond_the_loopback_interface(tmp_path, started, words):
    out, found = tmp_path / "run", set()
    started.append(process := train(out, "train.kimg=0.32", devices=words))

    def observed():
        found.update(listeners([process.pid, *children(process.pid)]))
        return process.poll() is not None

    wait_for(observed)
    said, complaints = process.communicate(timeout=200)
    assert process.returncode == 0, said + complaints
    assert found == {"127.0.0.1"}


@pytest.mark.slow
@pytest.mark.chaos
def test_ranks_finish_while_their_launcher_is_suspended_and_it_reports_when_it_continues(tmp_path, started):
    out = tmp_path / "run"
    started.append(process := train(out, "train.kimg=1.6"))
    wait_for(lambda: newest(out) >= "step-000000020", process)
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: (out / "exit.json").exists())
    assert process.poll() is None
    process.send_signal(signal.SIGCONT)
    said, complaints = process.communicate(timeout=100)
    assert (process.returncode, complaints) == (0, ""), said
    assert json.loads((out / "exit.json").read_text())["reason"] == "finished"
    assert "finished: step 100" in said


@pytest.mark.slow
@pytest.mark.chaos
def test_a_suspended_rank_is_replaced(tmp_path, started):
    """Other ranks wait `train.timeout_s` for it; then it is killed at once."""
    out = tmp_path / "run"
    started.append(process := train(out, "train.kimg=0.8", "train.timeout_s=12", "train.watchdog_s=null"))
    wait_for(lambda: newest(out) >= "step-000000020", process)
    os.kill(children(process.pid)[1], signal.SIGSTOP)
    said, complaints = process.communicate(timeout=200)
    assert (process.returncode, complaints) == (0, ""), said
    assert "restarting from the last checkpoint: " in said
    log = (out / "ranks" / "launch.log").read_text()
    assert "launcher: attempt 0: rank 1 was killed by signal 9" in log
    assert "launcher: attempt 1: rank 1 ended with exit code 0" in log
