"""Launch of `paragan train … transport=mpi`, and this process's rank there. Imports no torch."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paragan.core.errors import PREEMPTED, ConfigError, RankError
from paragan.core.interrupt import Interrupt
from paragan.core.local_processes import LocalProcesses, catches_signal, is_suspended
from paragan.distributed.launch import exit_status
from paragan.distributed.launch.rank_env import RESUME_HINT, loopback_interface

RUN = "PARAGAN_RUN"  # environment variable with the launcher's id of the run
_RANK = (("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMIX_RANK", "SLURM_NTASKS"))
_INTERFACES = ("UCX_NET_DEVICES", "FI_TCP_IFACE")  # of MPICH's two network layers
_PAUSE_S = 0.1
# longest start of rank 0; after that it must be on another host, and mpiexec forwards requests
_FIND_S = 5.0
_SAVE_S = 30.0  # added to `timeout_s` for a run that saves
_END_S = 15.0  # until the other processes are killed after rank 0 has ended


@dataclass(frozen=True)
class MpiJob:
    """A grid run of `count` processes. words: arguments of `paragan`. timeout_s: of waits."""

    words: tuple[str, ...]
    count: int
    folder: Path
    timeout_s: float


def rank_and_size(environment: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """Return rank and size under mpiexec (or srun with PMI); None elsewhere or for one process."""
    env = os.environ if environment is None else environment
    for rank, size in _RANK:
        if env.get(rank, "").isdecimal() and env.get(size, "").isdecimal() and int(env[size]) > 1:
            return int(env[rank]), int(env[size])
    return None


def launch_mpi(job: MpiJob, interrupt: Interrupt) -> tuple[int, str]:
    """Run the processes to their end; return the exit code, and a reason if rank 0 reported none.

    The code is that of rank 0: mpiexec's would be 0, 9 or 75 for the same failure. A request to
    stop goes to rank 0, which saves; before it has begun, and at a second Ctrl-C, all are killed.
    """
    run = uuid.uuid4().hex
    program = (sys.executable, "-P", "-m", "paragan")
    command = [*_mpiexec_command(), "-n", str(job.count), *program, *job.words]
    with LocalProcesses() as processes:
        processes.start(command, _environment(run))
        _wait(processes, job, run, interrupt)
    _signal(_run_processes(run), signal.SIGKILL)  # mpiexec may have ended before its processes
    if interrupt.aborted:
        return 128 + signal.SIGINT, f"aborted; {RESUME_HINT}"
    if (end := _rank_0_exit(job.folder, run)) is not None:
        return end.code, ""
    if interrupt.requested and not exit_status.lacks_exit(job.folder):
        return PREEMPTED, "stopped before the first step"
    return RankError.exit_code, f"the coordinator was killed, or ran out of memory; {RESUME_HINT}"


def _environment(run: str) -> dict[str, str]:
    """Return the environment of all processes; MPI is confined to the loopback interface."""
    interface = loopback_interface()
    confined = {} if interface is None else dict.fromkeys(_INTERFACES, interface)
    return confined | dict(os.environ) | {RUN: run}


def _wait(mpiexec: LocalProcesses, job: MpiJob, run: str, interrupt: Interrupt) -> None:
    """Return when mpiexec has ended or its time is over, or the run was stopped before it began."""
    requested_at = math.inf
    is_forwarded = False
    deadline = math.inf
    while mpiexec.running and not interrupt.aborted and time.monotonic() < deadline:
        now = time.monotonic()
        if interrupt.requested and not is_forwarded:
            requested_at = min(requested_at, now)
            deadline = requested_at + job.timeout_s + _SAVE_S
            found = _run_processes(run).items()
            rank_0 = next((pid for pid, env in found if (rank_and_size(env) or (-1,))[0] == 0), None)
            if rank_0 is not None and not catches_signal(rank_0, signal.SIGTERM):
                return
            if is_forwarded := rank_0 is not None or now > requested_at + _FIND_S:
                _signal([rank_0 or mpiexec.processes[0].pid], signal.SIGTERM)
        if _rank_0_exit(job.folder, run) is not None:
            deadline = min(deadline, now + _END_S)
            # mpiexec would wait for suspended processes
            _signal(filter(is_suspended, _run_processes(run)), signal.SIGKILL)
        time.sleep(_PAUSE_S)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _run_processes(run: str) -> dict[int, dict[str, str]]:
    """Return the environment of each local process of this run, by id, oldest first (Linux)."""
    found = {}
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with suppress(OSError):
            words = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            env = dict(word.partition("=")[::2] for word in words)
            if env.get(RUN) == run:
                found[int(folder.name)] = env
    return found


def _rank_0_exit(folder: Path, run: str) -> exit_status.ExitStatus | None:
    return next((end for end in exit_status.read_all(folder, run) if end.rank == 0), None)


def _mpiexec_command() -> list[str]:
    """Return the command of mpiexec; that of this interpreter's environment is preferred.

    MPICH's gforker starts local processes and listens nowhere; hydra listens on every interface.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise ConfigError(
            f"transport=mpi requires mpi4py; run {sys.executable} -m pip install mpi4py mpich, or use transport=gloo"
        )
    bin_folder = str(Path(sys.executable).parent)
    names = (
        shutil.which("mpiexec.gforker", path=bin_folder),
        shutil.which("mpiexec", path=bin_folder),
        shutil.which("mpiexec"),
    )
    if (found := next(filter(None, names), None)) is None:
        hint = f"run {sys.executable} -m pip install mpich, or use transport=gloo"
        raise ConfigError(f"transport=mpi requires the program mpiexec; {hint}")
    return [found]
