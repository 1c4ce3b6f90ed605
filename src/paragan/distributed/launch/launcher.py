"""Launcher of `paragan train … devices=N` on one host: attempts until one succeeds, and one report.

An attempt is a process per device. Rank 0 prints to the terminal; all other output goes to
`ranks/launch.log`. The ranks meet in a file without a name, and `rank_environment` confines gloo and
NCCL to the loopback interface, so that no socket of a run can be reached from another host.
"""

import os
import signal
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paragan.core.errors import PREEMPTED, RankError
from paragan.core.files import create_file, create_subfolder, open_to_append
from paragan.core.interrupt import Interrupt
from paragan.core.local_processes import LocalProcesses, describe_exit
from paragan.core.printable import print_to_stderr
from paragan.core.process_environment import num_cores
from paragan.distributed.launch import exit_status
from paragan.distributed.launch.rank_env import LAUNCHER, LOCK, RESUME_HINT, create_store_file, rank_environment

_ABORTED = 128 + signal.SIGINT
_EXIT_S = 15.0  # until remaining ranks are killed after a failure
_SAVE_S = 30.0  # added to `timeout_s` for ranks that save
_STOPPED = "stopped by a signal; the last checkpoint is intact"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run on several devices of this host.

    words: arguments of `paragan`, the same for each rank. timeout_s: of the ranks' waits. lock_fd:
    descriptor of the locked `run.lock`, which the ranks inherit: the folder stays locked until all
    have ended. program: the command of each rank.
    """

    words: tuple[str, ...]
    folder: Path
    devices: int
    timeout_s: float
    lock_fd: int
    max_restarts: int = 3
    program: tuple[str, ...] = (sys.executable, "-P", "-m", "paragan")

    @property
    def log(self) -> Path:
        """Log file of all output except that of rank 0."""
        return exit_status.ranks_folder(self.folder) / "launch.log"

    def environment(self) -> dict[str, str]:
        """Return the environment of all ranks; variables that the user has set take precedence."""
        unless_set = {
            "OMP_NUM_THREADS": str(max(1, num_cores() // self.devices)),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",  # as torchrun sets it
        }
        return unless_set | dict(os.environ) | {LAUNCHER: str(os.getpid()), LOCK: str(self.lock_fd)}


def launch_ranks(job: Job, interrupt: Interrupt) -> int:
    """Train on the ranks of `job`; return the exit code of the first that failed, 0 if none did.

    A rank that fails ends the attempt, and all ranks restart from the last checkpoint, unless
    another attempt would fail in the same way.
    """
    run = uuid.uuid4().hex
    create_subfolder(job.folder, job.log.parent.name)
    create_file(job.log).close()
    for number in range(job.max_restarts + 1):
        codes = attempt(job, run, number, interrupt)
        _log_exit_codes(job.log, number, codes)
        if interrupt.aborted:
            exit_status.write_run_exit(job.folder, _ABORTED, f"aborted; {RESUME_HINT}")
            return _ABORTED
        if not any(codes):
            return 0
        if interrupt.requested or any(status.is_final for status in exit_status.read_all(job.folder, run)):
            break
    return _report_failure(job, run, interrupt.requested)


def attempt(job: Job, run: str, number: int, interrupt: Interrupt) -> list[int]:
    """Run all ranks once, from start to end; return the exit code of each."""
    with LocalProcesses() as ranks:
        start_ranks(ranks, job, run, number)
        return ranks.supervise(interrupt, exit_s=min(job.timeout_s, _EXIT_S), save_s=job.timeout_s + _SAVE_S)


def start_ranks(ranks: LocalProcesses, job: Job, run: str, number: int) -> None:
    """Start the ranks of an attempt."""
    file, store = create_store_file()
    common = job.environment() | {"TORCHELASTIC_RUN_ID": run, "TORCHELASTIC_RESTART_COUNT": str(number)}
    program = [*job.program, *job.words]
    try:
        for rank in range(job.devices):
            environment = common | rank_environment(rank, job.devices, store)
            ranks.start(program, environment, job.log, prints=rank == 0, inherit=(file, job.lock_fd))
    finally:
        os.close(file)


def _log_exit_codes(log: Path, number: int, codes: Sequence[int]) -> None:
    with open_to_append(log) as file:
        for rank, code in enumerate(codes):
            file.write(f"launcher: attempt {number}: rank {rank} {describe_exit(code)}\n".encode())


def _report_failure(job: Job, run: str, stop_requested: bool) -> int:
    """Print why the ranks failed, write `exit.json` if it is missing, and return the exit code."""
    failure = exit_status.first_failure(exit_status.read_all(job.folder, run))
    code, reason = _describe_failure(failure, stop_requested, job)
    exit_status.write_run_exit(job.folder, code, reason)
    if failure is not None and code == 1:
        reason = f"rank {failure.rank}: {reason}; its traceback is in {job.log}"
    if failure is None or code != PREEMPTED:  # a rank that saved has printed where the run stands
        print_to_stderr(reason)
    return code


def _describe_failure(failure: exit_status.ExitStatus | None, stop_requested: bool, job: Job) -> tuple[int, str]:
    """Return exit code and reason of a run. failure: what the first rank that failed has recorded, if anything."""
    code = RankError.exit_code if failure is None else failure.code
    if stop_requested and code == RankError.exit_code:  # the signal ended the ranks, which lost one another
        # ranks record nothing while they start, nor where they are killed
        has_begun = failure is not None or any((job.folder / "checkpoints").glob("step-*"))
        return PREEMPTED, _STOPPED if has_begun else "stopped before the first step"
    if failure is None:
        return code, f"no rank recorded why it ended (killed, or out of memory?); see {job.log}; {RESUME_HINT}"
    return code, failure.reason
