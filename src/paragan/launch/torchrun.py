"""`paragan train … devices=N` on one host: starts torchrun, and is the one who speaks and answers for its ranks.

What rank 0 prints reaches the terminal; what torchrun and the ranks say to stderr goes to `ranks/launch.log`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paragan.core.errors import PREEMPTED, RankError
from paragan.core.files import new_file, write_text
from paragan.core.interrupt import Interrupt
from paragan.core.printable import printable
from paragan.launch import ends
from paragan.launch.place import GLOO_INTERFACE, GOES_ON, LAUNCHER, alive, loopback, num_cores

MAX_RESTARTS = 3
_PAUSE_S = 0.1


@dataclass(frozen=True)
class Job:
    """words: what follows `paragan`, the same for each rank. timeout_s: how long ranks may take to save and end."""

    words: tuple[str, ...]
    folder: Path
    devices: int
    timeout_s: float
    max_restarts: int = MAX_RESTARTS

    @property
    def log(self) -> Path:
        return ends.ranks(self.folder) / "launch.log"

    def command(self, run: str, scratch: str) -> list[str]:
        """torchrun with a rendezvous of its own, on this host, at a free port."""
        rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--rdzv-id={run}"]
        size = ["--nnodes=1", f"--nproc-per-node={self.devices}", f"--max-restarts={self.max_restarts}"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", *rendezvous, *size, f"--log-dir={scratch}"]
        return [*torchrun, "-m", "paragan", *self.words]

    def environment(self, outside: Mapping[str, str] = os.environ, cores: int | None = None) -> dict[str, str]:
        """Of torchrun and the ranks: the cores are shared out, and gloo stays on this host; what is set stands."""
        shared = {
            "OMP_NUM_THREADS": str(max(1, (cores or num_cores()) // self.devices)),
            "PYTHONSAFEPATH": "1",  # the working directory is searched last: `cli.main` appends it
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(int(self.timeout_s) + 1),  # older torchruns have no option for it
        }
        if (interface := loopback()) is not None:
            shared[GLOO_INTERFACE] = interface
        return shared | dict(outside) | {LAUNCHER: str(os.getpid())}


def launch(job: Job, interrupt: Interrupt) -> int:
    """Train on the ranks of `job`; the exit code of the first that failed, 0 if none did.

    The first request to stop is handed on, and waited for at most `timeout_s` and a little; a second Ctrl-C ends all.
    """
    run = uuid.uuid4().hex
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, new_file(job.log) as log:
        torchrun = subprocess.Popen(
            job.command(run, scratch),
            env=job.environment(),
            stdin=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,  # Ctrl-C comes here, and goes on from here
        )
        _wait(torchrun, job, interrupt)
    if interrupt.aborted:
        _leave_word(job.folder, 128 + signal.SIGINT, f"aborted; {GOES_ON}")
        return 128 + signal.SIGINT
    return _told(job, run, torchrun.returncode, interrupt.requested)


def _wait(torchrun: subprocess.Popen[bytes], job: Job, interrupt: Interrupt) -> None:
    """Until torchrun and its ranks have ended, or somebody cannot wait; then they are killed."""
    deadline, ranks = float("inf"), []
    while torchrun.poll() is None and not interrupt.aborted and time.monotonic() < deadline:
        ranks = _children(torchrun.pid)
        if interrupt.requested and deadline == float("inf"):
            deadline = time.monotonic() + job.timeout_s + 30  # ranks that will not end are torchrun's to kill
            with suppress(ProcessLookupError):
                torchrun.send_signal(signal.SIGTERM)
        time.sleep(_PAUSE_S)
    deadline = min(deadline, time.monotonic() + job.timeout_s)
    if torchrun.poll() is None:
        torchrun.kill()
        torchrun.wait(30)
        deadline = 0.0
    while any(map(alive, ranks)) and time.monotonic() < deadline:  # torchrun was killed: they notice, and save
        if interrupt.aborted:
            break
        time.sleep(_PAUSE_S)
    for rank in filter(alive, ranks):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(rank, signal.SIGKILL)  # torchrun gave each a group of its own


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # a system without /proc
        with suppress(OSError, subprocess.TimeoutExpired):
            told = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, timeout=10)
            return [int(word) for word in told.stdout.split()]
    return []


def _told(job: Job, run: str, code: int, asked: bool) -> int:
    """What the user hears of ranks that have ended, and the exit code. `exit.json`, where they could not write it."""
    if code == 0:
        return 0
    end = ends.first(ends.of_run(job.folder, run))
    if end is None:
        lost = f"no rank could tell why it ended (killed, or out of memory?); see {job.log}; {GOES_ON}"
        code, reason = (PREEMPTED, "stopped before the first step") if asked else (RankError.exit_code, lost)
    else:
        code, reason = end.code, end.reason
    if asked and code == RankError.exit_code:  # while the ranks were still looking for one another
        code, reason = PREEMPTED, "stopped by a signal; the last checkpoint stands"
    _leave_word(job.folder, code, reason)
    if code == 1:
        reason = f"rank {end.rank if end else 0}: {reason}; its traceback is in {job.log}"
    if end is None or code != PREEMPTED:
        print(printable(reason), file=sys.stderr)
    return code


def _leave_word(folder: Path, code: int, reason: str) -> None:
    """Rank 0 removes `exit.json` when it begins: where there is a run and none, it ended without a word."""
    path = folder / "exit.json"
    if path.exists() or not (folder / "config.yaml").exists():
        return
    saved = max((p.name for p in (folder / "checkpoints").glob("step-*")), default="step-0")
    step = int("".join(c for c in saved if c.isdecimal()) or 0)
    with suppress(OSError):
        write_text(path, json.dumps({"code": code, "step": step, "reason": reason}, indent=1) + "\n")
