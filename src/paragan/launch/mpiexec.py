"""`paragan train … transport=mpi`: which of mpiexec's processes this one is, and how they are started.

Nothing here imports torch, or begins MPI.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from paragan.core.errors import ConfigError
from paragan.core.interrupt import Interrupt

_RANK = (("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMIX_RANK", "SLURM_NTASKS"))
_PAUSE_S = 0.1


def here(environment: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """Rank and number of processes, where mpiexec (or srun with PMI) started more than one; None elsewhere."""
    env = os.environ if environment is None else environment
    for rank, size in _RANK:
        if env.get(rank, "").isdecimal() and env.get(size, "").isdecimal() and int(env[size]) > 1:
            return int(env[rank]), int(env[size])
    return None


def launch(words: Sequence[str], count: int, folder: Path, timeout_s: float, interrupt: Interrupt) -> int:
    """Start so many processes of `paragan` with these words, and wait for their end; their exit code.

    The first request to stop goes to the one that holds the run's folder, which saves; a second Ctrl-C ends all.
    """
    command = [*_mpiexec(), "-n", str(count), sys.executable, "-P", "-m", "paragan", *words]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    deadline = float("inf")
    while process.poll() is None and not interrupt.aborted and time.monotonic() < deadline:
        if interrupt.requested and deadline == float("inf"):
            deadline = time.monotonic() + timeout_s
            _ask(folder)
        time.sleep(_PAUSE_S)
    if process.poll() is None:
        process.terminate()  # mpiexec ends what it has started
        with suppress(subprocess.TimeoutExpired):
            process.wait(10.0)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return 128 + signal.SIGINT
    return process.returncode


def _ask(folder: Path) -> None:
    """Whoever trains in that folder to save and end."""
    with suppress(OSError, ValueError):
        os.kill(int((folder / "run.lock").read_text()), signal.SIGTERM)


def _mpiexec() -> list[str]:
    """That which belongs to this interpreter's MPI, before any other."""
    if importlib.util.find_spec("mpi4py") is None:
        raise ConfigError(
            f"transport: found mpi without mpi4py, expected it: {sys.executable} -m pip install mpi4py mpich, or "
            "transport=gloo"
        )
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    if (found := beside or shutil.which("mpiexec")) is None:
        raise ConfigError("transport: found mpi without mpiexec, expected it: pip install mpich, or transport=gloo")
    return [found]
