"""`paragan train … devices=N` on one host: attempts until one succeeds, and one report of how the run ended."""

from __future__ import annotations

import signal
import sys
import uuid
from collections.abc import Sequence
from typing import BinaryIO

from paragan.core.errors import PREEMPTED, RankError
from paragan.core.files import create_file
from paragan.core.interrupt import Interrupt
from paragan.core.printable import to_printable
from paragan.distributed.launch import exit_status
from paragan.distributed.launch.local_ranks import Attempt, Job
from paragan.distributed.launch.rank_env import RESUME_HINT

_ABORTED = 128 + signal.SIGINT


def launch(job: Job, interrupt: Interrupt) -> int:
    """Train on the ranks of `job`; the exit code of the first that failed, 0 if none did.

    A rank that fails ends the attempt, and all ranks start again from the last checkpoint, unless another attempt would
    fail likewise.
    """
    run = uuid.uuid4().hex
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with create_file(job.log) as log:
        for number in range(job.max_restarts + 1):
            codes = Attempt(job, run, number, log).wait(interrupt)
            _log_exit_codes(log, number, codes)
            if interrupt.aborted:
                exit_status.write_exit(job.folder, _ABORTED, f"aborted; {RESUME_HINT}")
                return _ABORTED
            if not any(codes):
                return 0
            if interrupt.requested or any(end.is_final for end in exit_status.read_all(job.folder, run)):
                break
    return _report_failure(job, run, interrupt.requested)


def _log_exit_codes(log: BinaryIO, number: int, codes: Sequence[int]) -> None:
    for rank, code in enumerate(codes):
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        log.write(f"launcher: attempt {number}: rank {rank} {how}\n".encode())
    log.flush()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _report_failure(job: Job, run: str, stop_requested: bool) -> int:
    """Print why the ranks failed; returns the exit code. Writes `exit.json` where the ranks could not."""
    end = exit_status.first_failure(exit_status.read_all(job.folder, run))
    if end is None:
        lost = f"no rank could tell why it ended (killed, or out of memory?); see {job.log}; {RESUME_HINT}"
        code, reason = (PREEMPTED, "stopped before the first step") if stop_requested else (RankError.exit_code, lost)
    else:
        code, reason = end.code, end.reason
    if stop_requested and code == RankError.exit_code:  # while the ranks were still looking for one another
        code, reason = PREEMPTED, "stopped by a signal; the last checkpoint is intact"
    exit_status.write_exit(job.folder, code, reason)
    if code == 1:
        reason = f"rank {end.rank if end else 0}: {reason}; its traceback is in {job.log}"
    if end is None or code != PREEMPTED:
        print(to_printable(reason), file=sys.stderr)
    return code
