"""Mirror of a run folder: a thread that uploads checkpoints, record and samples."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from paragan.checkpoint.manifest import MANIFEST, STATE, read_json
from paragan.checkpoint.writer import CheckpointWriter, link_checkpoint
from paragan.core.errors import CheckpointError, StorageError, describe_error
from paragan.core.files import create_subfolder, open_to_append, read_bytes, remove_tree
from paragan.engine.rollback_state import rollback_targets
from paragan.extensions.buckets.bucket_checkpoints import BucketCheckpoints
from paragan.extensions.buckets.lease import LEASE, Lease
from paragan.storage.bucket import ConflictError, ObjectBucket, StoredObject, Version
from paragan.storage.byte_store import MissingFileError

UPLOADS = "uploads.jsonl"
_POLL_S = 0.5  # between two looks for new files
_PAUSE_S = 5.0  # after a failure
_FOLDERS = ("samples", "judge", "tensorboard")  # others are checkpoints, or of use on one machine only
_SKIPPED = ("run.lock", LEASE)
_NAME = re.compile(r"[\w+-][\w+. -]{0,200}(/[\w+-][\w+. -]{0,200})?")  # none hidden
_MAX_BYTES = 1 << 30  # larger files are not copied
_MAX_TEXT_BYTES = 1 << 20  # of .json and .yaml, whose readers refuse more
_MAX_SINGLE_BYTES = 16 << 20  # of one put, which has 30 s; larger files are sent in parts, without a condition
_NUM_PUTS = 3
_PERIOD_S = 15.0  # between two uploads of small files, at least
_MAX_SHARE = 1 / 20  # of the time for these uploads: the record is stored as a whole each time


class FileState(NamedTuple):
    """Time of a file's last change, and its size: equal if the file has not changed."""

    modified_ns: int
    num_bytes: int


@dataclass(kw_only=True)
class MirroredFiles:
    """Small files of a run folder and of its bucket: config, record, exit status, samples.

    check_lease: called before each change of the bucket; raises an error if another process writes there.
    next_upload: time from which the next one is due, of `time.monotonic`.
    """

    bucket: ObjectBucket
    folder: Path
    check_lease: Callable[[], None] = lambda: None
    next_upload: float = 0.0
    _uploaded: dict[str, FileState] = field(default_factory=dict)  # by name
    _versions: dict[str, Version] = field(default_factory=dict)  # of the objects that this process has put

    def mark_uploaded(self, stored: dict[str, StoredObject]) -> None:
        """Do not upload files in subfolders of which the bucket has one of the same size.

        stored: the listing of the bucket.
        """
        if "exit.json" in stored:
            self._uploaded["exit.json"] = FileState(0, 0)  # of no file: the next upload replaces or removes it
        for name, state in self._states():
            if "/" in name and name in stored and stored[name].num_bytes == state.num_bytes:
                self._uploaded[name] = state

    def upload(self) -> None:
        """Upload all files that have changed."""
        began = time.monotonic()
        for name, state in self._states():
            if self._uploaded.get(name) == state:
                continue
            try:
                content = read_bytes(self.folder / name, _max_bytes(name))
            except FileNotFoundError:
                continue  # removed meanwhile
            if name.endswith(".jsonl"):
                content = content[: content.rfind(b"\n") + 1]  # whole lines: another thread may be writing
            self._put(name, content)
            self._uploaded[name] = state
        self._remove_exit()
        now = time.monotonic()
        self.next_upload = now + max(_PERIOD_S, (now - began) / _MAX_SHARE)

    def _put(self, name: str, content: bytes) -> None:
        """Store a file in place of a known version: a put of a former writer that arrives later knows an older one."""
        for _ in range(_NUM_PUTS):
            self.check_lease()
            if len(content) > _MAX_SINGLE_BYTES:
                self.bucket.put(name, content)
                return
            version = self._versions.pop(name, None)
            try:
                self._versions[name] = self.bucket.put(name, content, version, new=version is None)
                return
            except (ConflictError, MissingFileError):  # stored before, or by an earlier try; or removed
                with suppress(MissingFileError):
                    self._versions[name] = self.bucket.version(name)
        raise StorageError(
            f"{self.bucket.where(name)}: replaced by others during {_NUM_PUTS} tries; check that nothing else writes "
            "to this address"
        )

    def _remove_exit(self) -> None:
        """Remove the exit status of a former session, as the folder's was."""
        if "exit.json" in self._uploaded and not (self.folder / "exit.json").exists():
            self.bucket.delete("exit.json")
            del self._uploaded["exit.json"]

    def download(self) -> dict[str, StoredObject]:
        """Download all files that differ in size or time; return the listing of the bucket."""
        stored = self.bucket.list()
        for name, remote in stored.items():
            path = self.folder / name
            state = FileState(int(remote.modified * 1e9), remote.num_bytes)
            # a config that is too large is an error of the download: without it there is no run
            is_skipped = remote.num_bytes > _max_bytes(name) and name != "config.yaml"
            if not _is_mirrored(name) or is_skipped or _state_of(path) == state:
                continue
            create_subfolder(path.parent.parent, path.parent.name)
            self.bucket.download(name, path, _max_bytes(name))
            os.utime(path, ns=(state.modified_ns, state.modified_ns))
        return stored

    def _states(self) -> Iterator[tuple[str, FileState]]:
        """Yield name and state of each file."""
        for folder in (self.folder, *(self.folder / name for name in _FOLDERS)):
            for path in sorted(folder.glob("*")):
                name = str(path.relative_to(self.folder))
                if _is_mirrored(name) and (state := _state_of(path)) is not None:
                    yield name, state


def _is_mirrored(name: str) -> bool:
    folder, slash, _ = name.rpartition("/")
    if name in _SKIPPED or _NAME.fullmatch(name) is None:
        return False
    return not slash or folder in _FOLDERS


def _max_bytes(name: str) -> int:
    return _MAX_TEXT_BYTES if name.endswith((".json", ".yaml")) else _MAX_BYTES


def _state_of(path: Path) -> FileState | None:
    """Return the state of a plain file that is not too large; None for others."""
    if path.is_symlink() or not path.is_file():
        return None
    status = path.stat()
    return None if status.st_size > _max_bytes(path.name) else FileState(status.st_mtime_ns, status.st_size)


class RunMirror:
    """Uploads of one run folder. keep: number of checkpoints in the bucket. log: receives warnings.

    lease: held by this process; once it is lost, the process stops by SIGTERM.
    """

    def __init__(self, bucket: ObjectBucket, folder: Path, lease: Lease, keep: int, log: Callable[[str], None]) -> None:
        self.checkpoints = BucketCheckpoints(bucket, "checkpoints", check_lease=lease.check_lost)
        self.best = BucketCheckpoints(bucket, "best", ("score.json",), lease.check_lost)
        self.files = MirroredFiles(bucket=bucket, folder=folder, check_lease=lease.check_lost)
        self._folder = folder
        self._staging = folder.with_name(f"{folder.name}.upload")
        self._lease = lease
        self._keep = keep
        self._log = log
        self._uploaded: set[tuple[str, int]] = set()  # checkpoints, by `_key`
        self._failure = ""  # of the newest try; empty: it succeeded
        self._ending = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Upload the rest and end the thread. Raises `StorageError` if that takes longer."""
        self._deadline = time.monotonic() + timeout_s
        self._ending.set()
        self._thread.join(timeout_s)
        is_late = self._thread.is_alive()  # the removal below ends it
        failure = self._failure
        remove_tree(self._staging)
        if self._lease.is_lost:
            self._lease.check_lost()
        if failure or is_late:
            late = f"{self.files.bucket.address}: no response within {timeout_s:g} s"
            raise StorageError(f"the end of the run is not uploaded: {failure or late}; the same command uploads it")

    def mark_uploaded(self, path: Path) -> None:
        """Do not upload this checkpoint, which came from the bucket."""
        self._uploaded.add(_key(path))

    def _work(self) -> None:
        while not self._lease.is_lost:
            is_last = self._ending.is_set()
            self._try_to_upload(is_last)
            if is_last and (not self._failure or time.monotonic() > self._deadline):
                return
            if self._failure and is_last:
                time.sleep(min(_PAUSE_S, max(0.0, self._deadline - time.monotonic())))
            else:
                self._ending.wait(_PAUSE_S if self._failure else _POLL_S)
        if not self._ending.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    def _try_to_upload(self, is_last: bool) -> None:
        former_failure = self._failure
        try:
            self._upload_new(is_last)
            self._failure = ""
        except Exception as error:  # also an unexpected one: the thread must not end in silence
            self._failure = describe_error(error)
            if not former_failure and not self._lease.is_lost:
                self._log(f"warning: {self._failure}; training continues")

    def _upload_new(self, is_last: bool) -> None:
        if is_last or time.monotonic() >= self.files.next_upload:
            self.files.upload()
        for newest in CheckpointWriter(folder=self._folder / "checkpoints").paths()[-1:]:
            self._upload_run(newest)
        best = self._folder / "best"
        if (best / MANIFEST).is_file():
            name = f"step-{int(read_json(best / STATE)['step']):09d}"
            if self._upload(self.best, best, name):
                self.best.prune(1)

    def _upload_run(self, newest: Path) -> None:
        """Upload the newest checkpoint, after those to which the run may roll back."""
        try:
            if _key(newest) in self._uploaded:
                return
            protected = rollback_targets(newest)
        except (CheckpointError, FileNotFoundError):
            if (newest / MANIFEST).exists():
                raise
            return  # another has replaced it
        for path in protected:
            with suppress(CheckpointError):  # damaged: it must not hold up the newest one
                self._upload(self.checkpoints, path, path.name)
        if self._upload(self.checkpoints, newest, newest.name):
            self.checkpoints.prune(self._keep, [path.name for path in protected])

    def _upload(self, checkpoints: BucketCheckpoints, path: Path, name: str) -> bool:
        """Upload a checkpoint, unless that was done or another has replaced it; return whether it was."""
        began = time.time()
        staged = self._staging / path.name
        remove_tree(staged)
        try:
            key = _key(path)
            if key in self._uploaded:
                return False
            link_checkpoint(path, staged)  # the folder may be pruned during the upload
        except FileNotFoundError:
            if (path / MANIFEST).exists():
                raise
            return False
        num_bytes = checkpoints.upload(staged, name, self.files.upload)
        self._uploaded.add(key)
        if not num_bytes:
            return False  # the bucket had it
        values = {
            "checkpoint": f"{checkpoints.folder}/{name}",
            "bytes": num_bytes,
            "seconds": round(time.time() - began, 3),
            "behind_s": round(time.time() - key[1] / 1e9, 3),  # since the checkpoint was complete
        }
        with open_to_append(self._folder / UPLOADS) as file:
            file.write(json.dumps(values).encode() + b"\n")
        remove_tree(staged)
        return True


def _key(path: Path) -> tuple[str, int]:
    """Return what differs for a checkpoint that is written anew: its folder, and the time of its manifest."""
    return str(path), (path / MANIFEST).stat().st_mtime_ns
