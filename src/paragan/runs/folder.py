"""Run folder: used by one live process at a time; small files are replaced atomically."""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from paragan.core.errors import CheckpointError, ParaganError
from paragan.core.files import (
    check_no_link,
    create_subfolder,
    is_same_file,
    open_lock_file,
    read_bytes,
    read_json_file,
    read_json_lines,
    write_text,
)
from paragan.core.local_processes import is_suspended, processes_with
from paragan.distributed.launch.rank_env import mpi_rank_and_size
from paragan.runs.environment import read_environment

STUDY = "study.db"  # a folder of `paragan tune`, which is no run folder: its trials have those; a session refuses it
# folders that training writes to; and what else a run and its launcher write
WRITTEN = ("checkpoints", "best", "samples", "judge", "background", "ranks", "tensorboard", "wandb", "mlflow")
_RECORDS = ("run.lock", "exit.json", "environment.json", "metrics.jsonl", "report.html", "stacks", "lease.json")
_MAX_BYTES = 1 << 20
_KILL_S = 5.0
_PAUSE_S = 0.05


class RunFolder:
    """Paths of one run. As a context it exists and is locked; the lock also ends with the process.

    inherited_lock: descriptor of the folder's `run.lock`, if the launcher of this process holds the
    lock. The lock lasts until the launcher and all ranks have closed it.
    """

    def __init__(self, path: Path, inherited_lock: int | None = None) -> None:
        self.path = path
        self.inherited_lock = inherited_lock
        self._lock: BinaryIO | None = None

    @property
    def config(self) -> Path:
        """Resolved config of the run."""
        return self.path / "config.yaml"

    @property
    def failed_before_start(self) -> bool:
        """Whether a run has failed here before its first step."""
        failed = self._ended_at(0, code=ParaganError.exit_code)  # also in its first step
        return failed and not any((self.path / "checkpoints").glob("*"))

    def is_finished(self, step: int | None = None) -> bool:
        """Return whether the run has finished. step: at this one; None: at any."""
        return self._ended_at(step, code=0)

    def _ended_at(self, step: int | None, code: int) -> bool:
        with suppress(OSError, ValueError):
            status = read_json_file(self.path / "exit.json", dict, _MAX_BYTES)
            return status.get("code") == code and step in (None, status.get("step"))
        return False

    def other_files(self) -> list[str]:
        """Return the names of files that no run or launcher writes, sorted; of a folder without config.yaml."""
        with suppress(OSError):
            return sorted(path.name for path in self.path.iterdir() if path.name not in (*WRITTEN, *_RECORDS))
        return []

    def has_edited_config(self) -> bool:
        """Return whether config.yaml is not what the run has written."""
        recorded = read_environment(self.path).get("config_sha256")
        with suppress(OSError):
            return recorded not in (None, hashlib.sha256(read_bytes(self.config, _MAX_BYTES)).hexdigest())
        return False

    def missing_history(self, step: int) -> str:
        """Return a warning if checkpoints or record are missing for a run that begins at `step`; or ""."""
        record = self.path / "metrics.jsonl"
        if step and not record.exists():
            return f"warning: {record} is missing: the history of the run begins at step {step}"
        if not step and record.exists() and any(line.get("step") for line in read_json_lines(record)):
            return f"warning: {self.path} has a record but no later checkpoint: training begins again at step 0"
        return ""

    def __enter__(self) -> RunFolder:
        """Create the folder and lock it; `CheckpointError` if another process uses it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in WRITTEN:
                check_no_link(self.path / name)
            self._lock = self._acquire()
            if not self._is_inherited():
                self._lock.truncate(0)
                self._lock.write(str(os.getpid()).encode())
                self._lock.flush()
        except OSError as error:
            raise CheckpointError(
                f"cannot write to run folder {self.path} ({error.strerror}); give another --out DIR"
            ) from None
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            self._lock.close()

    @property
    def lock(self) -> int:
        """Descriptor of the lock, for a process that inherits it."""
        assert self._lock is not None, "inside the context"
        return self._lock.fileno()

    def keep(self, config: str) -> None:
        """Write a deleted config.yaml again; `CheckpointError` if `run.lock` is no longer this run's."""
        if not self.config.exists():
            write_text(self.config, config)
        if self._lock is not None and not is_same_file(self._lock, self.path / "run.lock"):
            raise CheckpointError(
                f"{self.path} was moved or deleted, or its run.lock replaced, while this run used it; the run is saved "
                "here: the same command resumes it, and earlier checkpoints stay where the folder was moved to"
            )

    def set_aside(self) -> Path | None:
        """Rename the folder of an existing run and return its new path; nothing is deleted.

        Raises `CheckpointError` while a process uses it. The launcher's log stays for the new run.
        """
        if not self.config.exists():
            return None  # not a run
        folder = self.path.resolve()
        number = 1
        while (aside := folder.with_name(f"{folder.name}.old-{number}")).exists():
            number += 1
        with self._acquire():
            is_inherited = self._is_inherited()
            try:
                folder.rename(aside)
            except OSError as error:
                raise CheckpointError(
                    f"--fresh cannot rename run folder {self.path} to {aside.name} ({error.strerror}); permit writing "
                    "in the folder above it, or choose another place with --out"
                ) from None
            if is_inherited:
                _move_lock(folder, aside)
        if (log := aside / "ranks" / "launch.log").exists():
            log.rename(create_subfolder(folder, "ranks") / "launch.log")
        return aside

    def _is_inherited(self) -> bool:
        """Return whether `run.lock` is the file that the launcher has locked."""
        with suppress(OSError):
            lock = self.path / "run.lock"
            return self.inherited_lock is not None and os.path.samestat(os.fstat(self.inherited_lock), os.stat(lock))
        return False

    def _acquire(self) -> BinaryIO:
        if self._is_inherited():
            assert self.inherited_lock is not None
            # not locked again: a lock belongs to the open file, which the copy of a descriptor shares
            return os.fdopen(os.dup(self.inherited_lock), "r+b", buffering=0)
        lock = open_lock_file(self.path / "run.lock")
        if not (try_to_lock(lock) or _lock_of_orphans(lock, self.path)):
            owner = _read_owner(lock)
            lock.close()
            raise _in_use(self.path, owner)
        return lock


def try_to_lock(file: BinaryIO) -> bool:
    """Lock an open file, unless another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_owner(lock: BinaryIO) -> str:
    lock.seek(0)
    return lock.read(20).decode("ascii", "replace").strip() or "unknown"


def _lock_of_orphans(lock: BinaryIO, path: Path) -> bool:
    """Kill suspended ranks of a dead launcher; others end by themselves. Return whether the lock is free."""
    owner = _read_owner(lock)
    if not owner.isdecimal() or Path(f"/proc/{owner}").exists():
        return False
    orphans = [pid for pid in processes_with(path / "run.lock") if is_suspended(pid)]
    for pid in orphans:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            print(
                f"warning: killed process {pid}, a suspended rank in {path} whose launcher has ended", file=sys.stderr
            )
    deadline = time.monotonic() + (_KILL_S if orphans else 0)
    while not (is_free := try_to_lock(lock)) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    return is_free


def _move_lock(folder: Path, aside: Path) -> None:
    """Move the launcher's lock to the new folder. `CheckpointError`: another process made that.

    The launcher has locked this file, not its path, until its job ends: the new run must be locked by it, too.
    """
    ours = aside / "run.lock"
    lock = folder / "run.lock"
    try:
        folder.mkdir()
        os.link(ours, lock)  # before the former name goes, so that no process can lock another file meanwhile
        ours.unlink()
    except FileExistsError:
        raise _in_use(folder, "another") from None
    except OSError:  # file system without hard links
        ours.rename(lock)


def _in_use(path: Path, owner: str) -> CheckpointError:
    hint = "wait for it, stop it, or give another --out DIR"
    if owner.isdecimal() and is_suspended(int(owner)):
        hint = f"it is suspended: `kill -CONT {owner}` continues it, `kill -KILL {owner}` ends it"
    elif mpi_rank_and_size() is not None:
        hint += "; only grids train by mpiexec: use devices=N or torchrun for several ranks of one plain run"
    return CheckpointError(f"run folder {path} is in use by process {owner}; {hint}")
