"""The launcher of processes over MPI: its exit code, and requests to stop. mpiexec is a small script."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from paragan.config import read_recipe
from paragan.core.interrupt import Interrupt
from paragan.core.local_processes import catches_signal, is_running
from paragan.distributed.launch import mpiexec
from paragan.distributed.launch.mpiexec import MpiJob
from paragan.runs.run_request import RunRequest
from paragan.runs.start_grid import start_grid
from tests.processes import wait_for

WAIT_S = 60.0
REPORT = """
import json, os, pathlib, sys, time
def report(code):
    path = pathlib.Path(sys.argv[sys.argv.index("--out") + 1], "ranks", "rank-0.exit.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    end = {"rank": 0, "code": code, "reason": "", "time": 1.0, "run_id": os.environ["PARAGAN_RUN"]}
    path.write_text(json.dumps(end))
"""
RANK_0 = """
os.environ |= {{"PMI_RANK": "0", "PMI_SIZE": "3"}}
os.execv(sys.executable, [sys.executable, "-c", {!r}, *sys.argv[1:]])
"""


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """Start a script as mpiexec: the code, and the reason."""

    def begin(script, interrupt=None):
        monkeypatch.setattr(mpiexec, "_mpiexec_command", lambda: [sys.executable, "-c", REPORT + script])
        job = MpiJob(("--out", str(tmp_path / "run")), 3, tmp_path / "run", WAIT_S)
        return mpiexec.launch_mpi(job, interrupt or Interrupt())

    return begin


@pytest.mark.parametrize("of_mpiexec", [0, 9, 75])
@pytest.mark.parametrize("of_rank_0", [0, 2, 75, 85])
def test_the_exit_code_is_that_of_rank_0_whatever_mpiexec_returns(launch, of_rank_0, of_mpiexec):
    assert launch(f"report({of_rank_0}); sys.exit({of_mpiexec})") == (of_rank_0, "")


def test_a_report_of_another_run_is_ignored(launch):
    code, reason = launch("os.environ['PARAGAN_RUN'] = 'another'; report(0)")
    assert code == 75 and reason.startswith("the coordinator was killed, or ran out of memory")


def test_a_suspended_process_does_not_delay_the_end(launch, monkeypatch):
    """mpiexec waits for it, and so would the launcher."""
    interrupt = Interrupt()
    monkeypatch.setattr(mpiexec, "_END_S", 1e6)
    aborts = threading.Timer(WAIT_S / 2, setattr, (interrupt, "aborted", True))
    aborts.start()
    script = "report(75); import subprocess, signal; child = subprocess.Popen(['sleep', '300']); "
    try:
        assert launch(script + "child.send_signal(signal.SIGSTOP); child.wait()", interrupt) == (75, "")
    finally:
        aborts.cancel()


def stop_when(interrupt, condition, how="requested"):
    """Request a stop as soon as the condition holds."""

    def wait():
        wait_for(condition, seconds=WAIT_S)
        setattr(interrupt, how, True)

    threading.Thread(target=wait, daemon=True).start()


def test_a_stop_before_the_run_begins_ends_it_at_once(launch, tmp_path):
    """Rank 0 does not take requests yet. mpiexec ends first, or it would interrupt and comment on all others."""
    interrupt, here, comment = Interrupt(), tmp_path / "here", tmp_path / "comment"
    stop_when(interrupt, here.exists)
    rank_0 = f"import pathlib, time; pathlib.Path({str(here)!r}).touch(); time.sleep(300)"
    script = "import subprocess; env = os.environ | {'PMI_RANK': '0', 'PMI_SIZE': '3'}\n"
    script += f"subprocess.run([sys.executable, '-c', {rank_0!r}], env=env); pathlib.Path({str(comment)!r}).touch()"
    assert launch(script, interrupt) == (85, "stopped before the first step")
    assert not comment.exists()


def test_a_stop_reaches_rank_0_which_saves(launch, tmp_path):
    interrupt, here = Interrupt(), tmp_path / "here"
    stop_when(interrupt, here.exists)
    rank_0 = REPORT + "import signal; signal.signal(signal.SIGTERM, lambda *_: (report(85), sys.exit(0)))\n"
    rank_0 += f"pathlib.Path({str(here)!r}).touch()\ntime.sleep(300)"
    assert launch(RANK_0.format(rank_0), interrupt) == (85, "")


def test_a_stop_never_signals_the_process_that_a_stale_lock_names(launch, tmp_path):
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.lock").write_text(str(bystander.pid))
    try:
        interrupt, here = Interrupt(), tmp_path / "here"
        stop_when(interrupt, here.exists)
        rank_0 = f"import pathlib, time; pathlib.Path({str(here)!r}).touch(); time.sleep(300)"
        launch(RANK_0.format(rank_0), interrupt)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait(WAIT_S)


def test_a_second_ctrl_c_kills_all_processes(launch, tmp_path):
    interrupt, child = Interrupt(), tmp_path / "child"
    stop_when(interrupt, lambda: child.exists() and child.read_text(), "aborted")
    script = "import subprocess; child = subprocess.Popen(['sleep', '300'])\n"
    script += f"pathlib.Path({str(child)!r}).write_text(str(child.pid)); time.sleep(300)"
    code, reason = launch(script, interrupt)
    assert code == 130 and reason.startswith("aborted")
    wait_for(lambda: not is_running(int(child.read_text())))


@pytest.mark.parametrize("number", [None, signal.SIGUSR2, signal.SIGTERM])
def test_whether_a_process_catches_sigterm(number):
    install = "" if number is None else f"signal.signal({int(number)}, print); "
    words = [sys.executable, "-c", f"import signal, sys; {install}print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert catches_signal(process.pid, signal.SIGTERM) == (number == signal.SIGTERM)
        process.stdin.close()
    assert not catches_signal(process.pid, signal.SIGTERM)


def test_mpi_listens_on_the_loopback_unless_the_user_names_an_interface(monkeypatch):
    monkeypatch.setenv("FI_TCP_IFACE", "eth0")
    found = mpiexec._environment("abc")
    assert (found["UCX_NET_DEVICES"], found["FI_TCP_IFACE"], found["PARAGAN_RUN"]) == ("lo", "eth0", "abc")


@pytest.mark.parametrize("begun", [True, False])
def test_exit_json_is_written_for_a_coordinator_that_was_killed(tmp_path, monkeypatch, capsys, begun):
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.yaml").touch()
    if not begun:
        (out / "exit.json").write_text('{"code": 85}')
    monkeypatch.setattr(mpiexec, "rank_and_size", lambda: None)
    monkeypatch.setattr(mpiexec, "launch_mpi", lambda job, interrupt: (75, "the coordinator was killed"))
    config = read_recipe("digits", ["grid.shape=2x2", "workers=2", "transport=mpi"])
    assert start_grid(RunRequest(config, "digits", out)) == 75
    found = json.loads((out / "exit.json").read_text())
    assert found == ({"code": 75, "step": 0, "reason": "the coordinator was killed"} if begun else {"code": 85})
    assert capsys.readouterr().err == "the coordinator was killed\n"


def test_the_launcher_that_starts_on_this_host_alone_is_preferred(tmp_path, monkeypatch):
    """It listens nowhere."""
    monkeypatch.setattr(mpiexec.importlib.util, "find_spec", lambda name: SimpleNamespace())
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    for name in ("mpiexec", "mpiexec.gforker"):
        (tmp_path / name).touch(mode=0o755)
        assert mpiexec._mpiexec_command() == [str(tmp_path / name)]
