"""A grid on processes that mpiexec or torchrun started, or a person: the same genomes, and an end for every mishap."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from paragan.cli.main import main
from tests.chaos.test_workers import GRID, WAIT_S, alive, begin, crew, finished, generations, genomes, listens
from tests.marks import MPI, MPIEXEC
from tests.processes import children, environment, wait_for

pytestmark = [pytest.mark.distributed, pytest.mark.chaos]

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
EVERY_ONE = "every.save_kimg=0.16"  # a checkpoint of each generation


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """In one process, this one, undisturbed."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert main(["train", "digits", *GRID, "--out", str(folder)]) == 0
    return genomes(folder)


def under(launcher, folder, *words):
    python = [] if launcher[:1] == TORCHRUN[:1] else [sys.executable]
    command = [*launcher, *python, "-m", "paragan", "train", "digits", *GRID, *words, "--out", str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment(), cwd=folder.parent, start_new_session=True, **pipes)


def ranks(process, count):
    """The processes of paragan below a launcher, the coordinator's first."""

    def found():
        below = [pid for pid in children(process.pid) if b"paragan\0train" in command_of(pid) and rank_of(pid) >= 0]
        return sorted(below, key=rank_of) if len(below) >= count else []

    wait_for(found, process, WAIT_S)
    return found()


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def rank_of(pid):
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next((int(word.partition(b"=")[2]) for word in words if word.startswith((b"PMI_RANK=", b"RANK="))), -1)


def begin_mpi(started, folder, *words):
    """A coordinator and two workers under mpiexec."""
    process = under([MPIEXEC, "-n", "3"], folder, "transport=mpi", *words)
    started.append(process)
    return process


@MPI
@pytest.mark.slow
def test_grid_under_mpiexec_of_one_host_listens_on_the_loopback_alone(started, tmp_path, expected, monkeypatch):
    folder = tmp_path / "run"
    for name in ("UCX_NET_DEVICES", "FI_TCP_IFACE"):
        monkeypatch.setenv(name, "lo")
    launcher = Path(MPIEXEC).with_name("mpiexec.gforker")
    process = under([str(launcher) if launcher.exists() else MPIEXEC, "-n", "3"], folder, "transport=mpi")
    started.append(process)
    wait_for(lambda: len(generations(folder)) >= 1, process, WAIT_S)
    found = {address for pid in (process.pid, *children(process.pid)) for address in listens(pid)}
    finished(process)
    assert genomes(folder) == expected and generations(folder) == list(range(1, 11))
    assert not (folder / "ranks" / "token").exists()
    if launcher.exists():
        assert found and all(address.startswith("127.") for address in found), found


@MPI
@pytest.mark.slow
@pytest.mark.parametrize(("who", "how"), [(0, signal.SIGKILL), (2, signal.SIGSTOP)])
def test_a_failure_over_mpi_ends_all_processes_and_is_recorded(started, tmp_path, who, how):
    folder = tmp_path / "run"
    process = begin_mpi(started, folder, "train.kimg=1000", "grid.heartbeat_s=0.2")
    wait_for(lambda: len(generations(folder)) >= 1, process, WAIT_S)
    pids = ranks(process, 3)
    os.kill(pids[who], how)
    if how == signal.SIGSTOP:
        wait_for((folder / "exit.json").exists, process, WAIT_S)
        os.kill(pids[who], signal.SIGCONT)  # mpiexec waits for suspended processes
        assert json.loads((folder / "exit.json").read_text())["code"] == 75
    process.communicate(timeout=WAIT_S)
    wait_for(lambda: not [pid for pid in pids if alive(pid)], seconds=WAIT_S)


@MPI
@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 5])
def test_under_mpiexec(started, tmp_path, expected, count):
    process = under([MPIEXEC, "-n", str(count)], tmp_path / "run", "transport=mpi")
    started.append(process)
    out = finished(process)
    assert genomes(tmp_path / "run") == expected, out


@pytest.mark.slow
def test_under_torchrun(started, tmp_path, expected):
    process = under([*TORCHRUN, "--nproc-per-node=3"], tmp_path / "run")
    started.append(process)
    finished(process)
    assert genomes(tmp_path / "run") == expected


@MPI
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("who", ["coordinator", "worker"])
def test_the_same_command_goes_on_when_mpi_has_ended_all(started, tmp_path, expected, who, how, seed):
    folder = tmp_path / "run"
    process = begin_mpi(started, folder, EVERY_ONE)
    wait_for(lambda: len(generations(folder)) >= 4 + seed, process, WAIT_S)
    found = ranks(process, 3)
    time.sleep(0.13 * seed)
    os.kill(found[0] if who == "coordinator" else found[1 + seed], how)
    if (who, how) == ("coordinator", signal.SIGSTOP):
        time.sleep(5)  # the workers were told nothing, and go on when it does
        os.kill(found[0], signal.SIGCONT)
        finished(process)
        assert genomes(folder) == expected
        return
    if (who, how) == ("worker", signal.SIGSTOP):
        wait_for((folder / "exit.json").exists, process, WAIT_S)
        os.kill(found[1 + seed], signal.SIGCONT)
    process.communicate(timeout=WAIT_S)
    before = max(generations(folder))
    out = finished(begin_mpi(started, folder, EVERY_ONE))
    assert genomes(folder) == expected
    assert f"resuming at step {20 * before}" in out or f"resuming at step {20 * (before - 1)}" in out


@contextmanager
def busy_cores():
    """Every core of this machine has three processes that compute."""
    command = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(command) for _ in range(3 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait(WAIT_S)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["gloo", pytest.param("mpi", marks=MPI)])
def test_a_worker_that_is_delayed_on_a_busy_machine_retains_its_cells(started, tmp_path, expected, transport):
    """It sends nothing for four heartbeats, and the result is the same."""
    folder = tmp_path / "run"
    process = begin_mpi(started, folder) if transport == "mpi" else begin(started, folder, "workers=2")
    wait_for(lambda: len(generations(folder)) >= 2, process, WAIT_S)
    worker = ranks(process, 3)[1] if transport == "mpi" else crew(process, 2)[0]
    with busy_cores():
        os.kill(worker, signal.SIGSTOP)
        time.sleep(4)
        os.kill(worker, signal.SIGCONT)
    out = finished(process)
    assert "is late: no heartbeat for" in out and "responds again" in out and "failed" not in out
    assert genomes(folder) == expected and generations(folder) == list(range(1, 11))


@pytest.mark.slow
def test_a_worker_joins_by_hand(started, tmp_path, expected):
    folder = tmp_path / "run"
    process = begin(started, folder, "workers=1", "train.kimg=4.8", "grid.batches=60")
    token = folder / "ranks" / "token"
    wait_for(lambda: len(generations(folder)) >= 1, process, WAIT_S)
    address = told_address(process)
    words = [sys.executable, "-m", "paragan", "worker", address]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    more = subprocess.Popen(words, env=environment(PARAGAN_TOKEN_FILE=str(token)), start_new_session=True, **pipes)
    started.append(more)
    out = finished(process)
    assert "workers   2 with 2, 2 cells" in out
    told, _ = more.communicate(timeout=30)
    assert more.returncode == 0, told


def told_address(process):
    """Where the coordinator listens, as it prints it."""
    while line := process.stdout.readline():
        if "to add a worker, run" in line:
            return line.split()[-1]
    raise AssertionError("nothing was said of it")


@MPI
@pytest.mark.slow
def test_ctrl_c_saves_under_mpi_too(started, tmp_path, expected):
    folder = tmp_path / "run"
    process = begin_mpi(started, folder)
    wait_for(lambda: len(generations(folder)) >= 3, process, WAIT_S)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    process.communicate(timeout=WAIT_S)
    assert json.loads((folder / "exit.json").read_text())["code"] == 85
    finished(begin_mpi(started, folder))
    assert genomes(folder) == expected
