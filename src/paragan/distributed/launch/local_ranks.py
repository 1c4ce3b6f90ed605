"""One attempt at `paragan train … devices=N`: a process per device of this host, started and supervised.

Rank 0 prints to the terminal; everything else goes to `ranks/launch.log`. The ranks meet in a file without a name, and
gloo and NCCL are confined to the loopback interface, so that no socket of a run can be reached from another host.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from paragan.core.errors import PREEMPTED
from paragan.core.interrupt import Interrupt
from paragan.distributed.launch import exit_status
from paragan.distributed.launch.rank_env import (
    LAUNCHER,
    LOCK,
    create_store_file,
    is_suspended,
    num_cores,
    rank_environment,
)

MAX_RESTARTS = 3
_EXIT_S = 15.0  # for ranks that still run when another has failed
_SAVE_S = 30.0  # beyond `timeout_s`, for ranks that save
_KILL_S = 10.0
_PAUSE_S = 0.1


@dataclass(frozen=True)
class Job:
    """words: what follows `paragan`, the same for each rank. timeout_s: how long ranks wait for one another.

    lock: descriptor of the locked `run.lock`, which the ranks inherit: the folder stays locked until all have ended.
    program: what each rank runs.
    """

    words: tuple[str, ...]
    folder: Path
    devices: int
    timeout_s: float
    lock_fd: int
    max_restarts: int = MAX_RESTARTS
    program: tuple[str, ...] = (sys.executable, "-P", "-m", "paragan")

    @property
    def log(self) -> Path:
        return exit_status.ranks_folder(self.folder) / "launch.log"

    def environment(self, outside: Mapping[str, str] = os.environ, cores: int | None = None) -> dict[str, str]:
        """What all ranks have in common. What the user has set takes precedence over a fair share of the cores."""
        unless_set = {
            "OMP_NUM_THREADS": str(max(1, (cores or num_cores()) // self.devices)),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",  # as torchrun sets it
        }
        return unless_set | dict(outside) | {LAUNCHER: str(os.getpid()), LOCK: str(self.lock_fd)}


class Attempt:
    """The ranks of one attempt. Each leads a session: Ctrl-C at the terminal reaches the launcher alone."""

    def __init__(self, job: Job, run: str, number: int, log: BinaryIO) -> None:
        self.job = job
        self.processes: list[subprocess.Popen[bytes]] = []
        file, store = create_store_file()
        common = job.environment() | {"TORCHELASTIC_RUN_ID": run, "TORCHELASTIC_RESTART_COUNT": str(number)}
        try:
            for rank in range(job.devices):
                self._start(rank, common | rank_environment(rank, job.devices, store), (file, job.lock_fd), log)
        except BaseException:
            self.kill(self.running())
            raise
        finally:
            os.close(file)

    def _start(self, rank: int, env: dict[str, str], inherited: Sequence[int], log: BinaryIO) -> None:
        process = subprocess.Popen(
            [*self.job.program, *self.job.words],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log if rank else None,
            stderr=log,
            start_new_session=True,
            pass_fds=inherited,
        )
        self.processes.append(process)

    @property
    def failed(self) -> bool:
        """Whether a rank has ended in another way than at its end or by a stop."""
        return any(process.returncode not in (None, 0, PREEMPTED) for process in self.processes)

    def running(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self.processes if process.poll() is None]

    def wait(self, interrupt: Interrupt) -> list[int]:
        """The exit code of each rank, once all have ended.

        A request to stop is forwarded, and a failure ends the other ranks. Those that take too long are killed, and all
        are at a second Ctrl-C.
        """
        terminated, patience_s, deadline = False, math.inf, math.inf
        while running := self.running():
            if (shorter_s := self._patience_s(interrupt.requested)) < patience_s:
                patience_s = shorter_s
                deadline = min(deadline, time.monotonic() + shorter_s)
            if not terminated and (interrupt.requested or self.failed):
                terminated = True
                self._terminate(running)
            if interrupt.aborted or time.monotonic() > deadline:
                self.kill(running)
                break
            if self.failed:
                self.kill([process for process in running if is_suspended(process.pid)])
            time.sleep(_PAUSE_S)
        return [-signal.SIGKILL if process.poll() is None else process.returncode for process in self.processes]

    def _patience_s(self, requested: bool) -> float:
        """How long ranks may still run."""
        if self.failed:
            return min(self.job.timeout_s, _EXIT_S)
        has_ended = any(process.returncode is not None for process in self.processes)
        return self.job.timeout_s + _SAVE_S if requested or has_ended else math.inf

    def _terminate(self, running: Sequence[subprocess.Popen[bytes]]) -> None:
        for process in running:
            process.send_signal(signal.SIGTERM)

    def kill(self, running: Sequence[subprocess.Popen[bytes]]) -> None:
        """These ranks, with all that they have started."""
        for process in running:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in running:
            with suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel
                process.wait(_KILL_S)
