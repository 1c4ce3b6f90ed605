"""The launcher of local ranks, with small programs in place of ranks: real processes, real signals."""

import re
import signal
import sys
import threading

import pytest

from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.interrupt import Interrupt
from paragan.core.local_processes import LocalProcesses
from paragan.distributed.launch import exit_status, launcher
from paragan.distributed.launch.launcher import Job
from paragan.distributed.launch.rank_env import RankEnv
from paragan.runs.folder import RunFolder
from tests.processes import wait_for

RANK = """
import os, signal, sys, time
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
folder = sys.argv[1]
def wait_for(condition):
    while not condition():
        time.sleep(0.01)
def ready(number):
    return os.path.exists(f"{folder}/ready-{number}")
def ignore_stops():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def leave_pid():
    with open(f"{folder}/tmp-{rank}", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{folder}/tmp-{rank}", f"{folder}/ready-{rank}")
"""


@pytest.fixture
def folder(tmp_path):
    with RunFolder(tmp_path) as held:
        yield held


def job(folder, code, devices=2, timeout_s=60.0, **more):
    """Each rank runs `code` after the lines above."""
    return Job(
        words=(str(folder.path),),
        folder=folder.path,
        devices=devices,
        timeout_s=timeout_s,
        lock_fd=folder.lock,
        program=program(code),
        **more,
    )


def program(code):
    return (sys.executable, "-c", RANK + code)


def launched(folder, code, interrupt=None, **more):
    return launcher.launch_ranks(job(folder, code, **more), interrupt or Interrupt(patient=True))


def log(folder):
    return (folder.path / "ranks" / "launch.log").read_text()


def pid(folder, rank):
    path = folder.path / f"ready-{rank}"
    wait_for(path.exists)
    return int(path.read_text())


def test_ranks_that_all_succeed_end_the_run(folder, capfd):
    # one write for each line, also with PYTHONUNBUFFERED: two ranks append to one log
    code = "sys.stdout.write(f'out {rank}\\n'); sys.stderr.write(f'err {rank}\\n')"
    assert launched(folder, code) == 0
    out, err = capfd.readouterr()
    assert (out, err) == ("out 0\n", "")
    assert {"out 1", "err 0", "err 1"} <= set(log(folder).splitlines())
    assert "launcher: attempt 0: rank 1 ended with exit code 0" in log(folder)


def test_a_failure_restarts_all_ranks_until_one_attempt_succeeds(folder):
    code = "leave_pid(); wait_for(lambda: ready(0)); rank and attempt < 2 and os.kill(os.getpid(), 9)"
    assert launched(folder, code) == 0
    assert [f"attempt {n}: rank 1 was killed by signal 9" in log(folder) for n in range(3)] == [True, True, False]


def test_restarts_are_bounded_and_the_lost_run_is_reported(folder, capfd):
    assert launched(folder, "sys.exit(7)", max_restarts=2) == 75
    ended = re.findall(r"attempt (\d): rank \d ended with exit code 7", log(folder))  # the other rank may be killed
    assert set(ended) == {"0", "1", "2"}
    assert "no rank recorded why it ended" in capfd.readouterr().err


def test_a_failure_that_would_come_again_is_not_tried_again(folder, capfd, monkeypatch):
    monkeypatch.setattr(launcher.uuid, "uuid4", lambda: type("", (), {"hex": "x"}))
    exit_status.write_rank_exit(
        folder.path,
        RankEnv(rank=1, size=2, local_rank=1, local_size=2, attempt=0, run_id="x"),
        ConfigError("g.micro_batches: no"),
        2,
        "g.micro_batches: no",
    )
    assert launched(folder, "sys.exit(2)") == 2
    assert "attempt 1" not in log(folder)
    assert capfd.readouterr().err == "g.micro_batches: no\n"


def test_a_suspended_rank_is_killed_once_another_has_failed_and_the_rest_may_end(folder):
    code = """
if rank == 2:
    ignore_stops()
leave_pid()
if rank == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
if rank == 1:
    wait_for(lambda: ready(2))
    wait_for(lambda: ready(0) and open(f"/proc/{open(folder + '/ready-0').read()}/stat").read().split()[2] == "T")
    sys.exit(3)
if rank == 2:
    zero = int(open(folder + "/ready-0").read()) if not wait_for(lambda: ready(0)) else 0
    wait_for(lambda: not os.path.exists(f"/proc/{zero}") or open(f"/proc/{zero}/stat").read().split()[2] == "Z")
    sys.exit(5)
"""
    assert attempt(job(folder, code, devices=3)) == [-signal.SIGKILL, 3, 5]


def test_a_rank_that_does_not_end_after_a_failure_is_killed(folder):
    code = "ignore_stops(); leave_pid(); wait_for(lambda: ready(1 - rank)); sys.exit(3) if rank else time.sleep(60)"
    assert attempt(job(folder, code, timeout_s=0.5)) == [-signal.SIGKILL, 3]


def test_a_rank_that_does_not_end_after_the_others_is_killed(folder, monkeypatch):
    monkeypatch.setattr(launcher, "_SAVE_S", 0.2)
    code = "sys.exit(85) if rank else time.sleep(60)"
    assert attempt(job(folder, code, timeout_s=0.2)) == [-signal.SIGKILL, 85]


def test_a_request_to_stop_reaches_all_ranks_and_nothing_is_tried_again(folder, capfd):
    code = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(85)); leave_pid(); time.sleep(60)"
    interrupt = Interrupt(patient=True, message="")
    after(lambda: [pid(folder, rank) for rank in range(2)], lambda: interrupt._handle(signal.SIGHUP, None))
    assert launched(folder, code, interrupt) == 85
    assert log(folder).count("ended with exit code 85") == 2
    assert capfd.readouterr().err == "stopped before the first step\n"  # these ranks leave no word


def test_a_second_ctrl_c_kills_ranks_that_do_not_stop(folder):
    interrupt = Interrupt(patient=True, message="")
    after(
        lambda: [pid(folder, rank) for rank in range(2)],
        lambda: [interrupt._handle(signal.SIGINT, None) for _ in range(2)],
    )
    assert launched(folder, "ignore_stops(); leave_pid(); time.sleep(60)", interrupt) == 130
    assert log(folder).count("was killed by signal 9") == 2


def test_the_log_is_written_through_no_link(folder, tmp_path_factory):
    target = tmp_path_factory.mktemp("elsewhere") / "file"
    target.write_text("precious")
    (folder.path / "ranks").mkdir()
    (folder.path / "ranks" / "launch.log").symlink_to(target)
    assert launched(folder, "") == 0
    assert target.read_text() == "precious"


# the lock of the run folder


def test_a_folder_stays_locked_until_the_launcher_and_all_its_ranks_have_ended(tmp_path):
    with LocalProcesses() as ranks:
        with RunFolder(tmp_path) as folder:
            held = job(folder, "leave_pid(); wait_for(lambda: ready('end'))")
            prepare_log(held)
            launcher.start_ranks(ranks, held, "run", 0)
            pid(folder, 0)
        refused(tmp_path)
        (tmp_path / "ready-end").touch()
        assert ranks.wait(60)
    lock_and_release(tmp_path)


def test_rank_0_holds_the_lock_of_its_launcher(folder):
    (folder.path / "run.lock").write_text("4242")  # of a launcher that is another process
    with RunFolder(folder.path, inherited_lock=folder.lock) as again:
        refused(folder.path)
        assert (folder.path / "run.lock").read_text() == "4242"  # it is the launcher that can be stopped
        assert again.lock != folder.lock
    refused(folder.path)  # the launcher still holds it


def test_a_descriptor_of_another_file_is_no_lock(tmp_path, folder):
    other = tmp_path / "other"
    with open(tmp_path / "file", "w") as file, RunFolder(other, inherited_lock=file.fileno()):
        refused(other)
    with RunFolder(other, inherited_lock=folder.lock):
        refused(other)


def test_the_lock_stays_with_the_run_to_come(tmp_path):
    out = tmp_path / "run"
    with RunFolder(out) as folder:
        (out / "config.yaml").touch()
        aside = RunFolder(out, inherited_lock=folder.lock).set_aside()
        assert not (out / "config.yaml").exists()
        refused(out)
        lock_and_release(aside)
    lock_and_release(out)


def lock_and_release(path):
    with RunFolder(path):
        pass


def refused(path):
    with pytest.raises(CheckpointError, match="in use by process"):
        lock_and_release(path)


def attempt(job):
    prepare_log(job)
    return launcher.attempt(job, "run", 0, Interrupt(patient=True))


def prepare_log(job):
    job.log.parent.mkdir(exist_ok=True)


def after(condition, act):
    threading.Thread(target=lambda: (condition(), act()), daemon=True).start()
