"""Lock of a run folder: who holds it, and ranks that are suspended while no launcher is left to end them."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from paragan.core.errors import CheckpointError
from paragan.core.local_processes import is_suspended
from paragan.runs.folder import RunFolder
from tests.processes import wait_for

LAUNCHER = """
import subprocess, sys, time
from pathlib import Path
from paragan.runs.folder import RunFolder
with RunFolder(Path(sys.argv[1])) as folder:
    command = [sys.executable, "-c", "import time; time.sleep(100)"]
    rank = subprocess.Popen(command, pass_fds=[folder.lock], stdout=subprocess.DEVNULL)
    print(rank.pid, flush=True)
    time.sleep(100)
"""


@pytest.fixture
def launcher(tmp_path):
    """A process that has locked `run`, and the number of a rank that has inherited the lock."""
    process = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path / "run")], stdout=subprocess.PIPE)
    rank = int(process.stdout.readline())
    yield process, rank
    with suppress(ProcessLookupError):
        os.kill(rank, signal.SIGKILL)
    process.kill()
    process.communicate(timeout=30)


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: is_suspended(pid), seconds=30)


def test_lock_of_a_suspended_rank_without_its_launcher_is_taken_over(tmp_path, launcher, capsys):
    process, rank = launcher
    stop(rank)
    with pytest.raises(CheckpointError, match=f"in use by process {process.pid}; wait for it"):
        RunFolder(tmp_path / "run").__enter__()
    assert is_suspended(rank)  # its launcher lives
    process.kill()
    process.wait(30)
    with RunFolder(tmp_path / "run"):
        assert f"killed process {rank}, a suspended rank" in capsys.readouterr().err


def test_lock_of_a_live_rank_without_its_launcher_is_respected(tmp_path, launcher):
    process, rank = launcher
    process.kill()
    process.wait(30)
    with pytest.raises(CheckpointError, match="in use by process"):
        RunFolder(tmp_path / "run").__enter__()
    os.kill(rank, 0)


def test_lock_of_a_suspended_process_names_how_to_end_it(tmp_path, launcher):
    process, _ = launcher
    stop(process.pid)
    with pytest.raises(CheckpointError, match=f"it is suspended: `kill -CONT {process.pid}` continues it"):
        RunFolder(tmp_path / "run").__enter__()


@pytest.mark.parametrize("names", [("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")])
def test_lock_under_mpiexec_says_how_ranks_of_a_plain_run_start(tmp_path, monkeypatch, names):
    for name, number in zip(names, ("1", "2"), strict=True):
        monkeypatch.setenv(name, number)
    with (
        RunFolder(tmp_path / "run"),
        pytest.raises(CheckpointError, match="use devices=N or torchrun for several ranks"),
    ):
        RunFolder(tmp_path / "run").__enter__()
