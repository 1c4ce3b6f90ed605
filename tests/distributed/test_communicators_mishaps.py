"""Workers that are programs of their own: under mpiexec; and those that die, or stop, over gloo and MPI."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from tests.distributed.cases_communicators import PATIENCE_S
from tests.marks import MPI, MPIEXEC
from tests.processes import ROOT

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

FAR_S = PATIENCE_S / 4  # far less than the time-out


CASES = "tests.distributed.cases_communicators"


def program(module, *words):
    return [sys.executable, "-m", module, *map(str, words)]


def begin(command):
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    whole = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment, **whole)


def end(processes):
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def told(folder, ranks):
    return [json.loads((folder / f"told-{rank}").read_text()) for rank in ranks]


def mpiexec(folder, size, what, *options):
    """What is told by rank; the program has ended well."""
    started = begin([MPIEXEC, *options, "-n", str(size), *program(f"{CASES}_mpi", folder, what)])
    try:
        printed, _ = started.communicate(timeout=2 * PATIENCE_S)
        assert started.returncode == 0, printed[-6000:]
    finally:
        end([started])
    return told(folder, range(size))


@MPI
@pytest.mark.parametrize("size", [2, 4])
def test_mpi_exchanges_what_a_dictionary_holds(tmp_path, size):
    """Tori (also two and one wide), other graphs, idle processes, a coordinator that does not train."""
    assert mpiexec(tmp_path, size, "equals") == [{"returned": None}] * size


@MPI
@pytest.mark.parametrize("case", ["too_large"])
def test_two_processes_of_mpi(tmp_path, case):
    options = ["-disable-auto-cleanup"] if case == "too_large" else []  # those that dropped leave one by one
    assert mpiexec(tmp_path, 2, case, *options) == [{"returned": None}] * 2


@pytest.mark.parametrize("what", ["kill", "stop", "stop/flag"])
def test_over_gloo_who_is_gone_is_named_and_the_others_go_on(tmp_path, what):
    size = 3
    processes = [begin(program(CASES, tmp_path, rank, size, what)) for rank in range(size)]
    try:
        for process in processes[:-1]:
            printed, _ = process.communicate(timeout=2 * PATIENCE_S)
            assert process.returncode == 0, printed[-6000:]
    finally:
        end(processes)
    survived(told(tmp_path, range(size - 1)), what)


@MPI
@pytest.mark.parametrize("what", ["exit", "stop", "stop/flag"])
def test_over_mpi_who_is_gone_is_named_and_the_others_go_on(tmp_path, what):
    """A killed process would end all: mpiexec sees to that."""
    size = 3
    run = [MPIEXEC, "-disable-auto-cleanup", "-n", str(size), *program(f"{CASES}_mpi", tmp_path, what)]
    process = begin(run)
    try:
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not all((tmp_path / f"told-{rank}").exists() for rank in range(size - 1)):
            assert time.monotonic() < deadline and process.poll() in (None, 0, 1), process.communicate()[0][-6000:]
            time.sleep(0.1)
        survived(told(tmp_path, range(size - 1)), what)
    finally:
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int((tmp_path / f"pid-{size - 1}").read_text()), signal.SIGKILL)
        end([process])


def survived(found, what):
    lost = len(found)
    for said in found:
        assert said["worker"] == lost and said["again"], said
        assert said["drop_s"] < said["timeout_s"] / 2 and said["drop_s"] < FAR_S, said
        if what == "kill":
            assert f"worker {lost} failed" in said["error"] and said["after_s"] < FAR_S, said
        elif what.endswith("/flag"):
            assert said["error"].startswith("stopped after") and said["after_s"] < FAR_S, said
        else:
            assert " failed" in said["error"] or "did not answer within 3 s" in said["error"], said
            assert said["after_s"] < FAR_S, said
