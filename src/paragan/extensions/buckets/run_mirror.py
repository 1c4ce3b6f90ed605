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

from paragan.checkpoint.manifest import MANIFEST, STATE, read_json
from paragan.checkpoint.writer import CheckpointWriter, link_checkpoint
from paragan.core.collective import describe_error
from paragan.core.errors import CheckpointError, StorageError
from paragan.core.files import create_subfolder, open_to_append, read_bytes, remove_tree
from paragan.engine.rollback_state import rollback_targets
from paragan.extensions.buckets.bucket_checkpoints import BucketCheckpoints
from paragan.extensions.buckets.lease import LEASE, Lease
from paragan.storage.bucket import ConflictError, ObjectBucket, StoredObject, Version
from paragan.storage.byte_store import MissingFileError

UPLOADS = "uploads.jsonl"
_POLL_S = 0.5
_PAUSE_S = 5.0  # after a failure
_FOLDERS = ("samples", "judge", "tensorboard")  # the rest is of one machine, or checkpoints
_SKIPPED = ("run.lock", LEASE)
_NAME = re.compile(r"[\w+-][\w+. -]{0,200}(/[\w+-][\w+. -]{0,200})?")  # none hidden
_MAX_BYTES = 1 << 30  # larger files are not copied
_MAX_TEXT_BYTES = 1 << 20  # of .json and .yaml, whose readers refuse more
_MAX_SINGLE_BYTES = 16 << 20  # of one put, which has 30 s; larger files are sent in parts, which know no condition
_NUM_PUTS = 3
_PERIOD_S = 15.0
_SHARE = 1 / 20  # of the time, at most, for the record, which is stored as a whole each time


@dataclass(kw_only=True)
class MirroredFiles:
    """Small files of a run folder and of its bucket: config, record, exit status, samples.

    refuse: called before each change of the bucket.
    """

    bucket: ObjectBucket
    folder: Path
    refuse: Callable[[], None] = lambda: None
    _uploaded: dict[str, tuple[int, int]] = field(default_factory=dict)  # time and size by name
    _versions: dict[str, Version] = field(default_factory=dict)  # of the objects that this process has put
    _due: float = 0.0

    def know(self, stored: dict[str, StoredObject]) -> None:
        """Take files in subfolders as uploaded if the bucket has one of the same size.

        stored: the listing of the bucket.
        """
        if "exit.json" in stored:
            self._uploaded["exit.json"] = (0, 0)
        for name, state in self._states():
            if "/" in name and name in stored and stored[name].num_bytes == state[1]:
                self._uploaded[name] = state

    def upload_if_due(self) -> None:
        """Upload changed files, unless that was done a moment ago."""
        if time.monotonic() >= self._due:
            self.upload()

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
                content = content[: content.rfind(b"\n") + 1]
            self._put(name, content)
            self._uploaded[name] = state
        self._remove_exit()
        now = time.monotonic()
        self._due = now + max(_PERIOD_S, (now - began) / _SHARE)

    def _put(self, name: str, content: bytes) -> None:
        """Store a file in place of a known version: a put of a former writer that arrives later knows an older one."""
        for _ in range(_NUM_PUTS):
            self.refuse()
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
            modified_ns = int(remote.modified * 1e9)
            is_skipped = remote.num_bytes > _max_bytes(name) and name != "config.yaml"  # without which there is no run
            if not _is_mirrored(name) or is_skipped:
                continue
            if _state(path) == (modified_ns, remote.num_bytes):
                continue
            create_subfolder(path.parent.parent, path.parent.name)
            self.bucket.download(name, path, _max_bytes(name))
            os.utime(path, ns=(modified_ns, modified_ns))
        return stored

    def _states(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield name, time and size of each file."""
        for folder in (self.folder, *(self.folder / name for name in _FOLDERS)):
            for path in sorted(folder.glob("*")):
                name = str(path.relative_to(self.folder))
                if _is_mirrored(name) and (state := _state(path)) is not None:
                    yield name, state


def _is_mirrored(name: str) -> bool:
    folder, slash, _ = name.rpartition("/")
    if name in _SKIPPED or _NAME.fullmatch(name) is None:
        return False
    return not slash or folder in _FOLDERS


def _max_bytes(name: str) -> int:
    return _MAX_TEXT_BYTES if name.endswith((".json", ".yaml")) else _MAX_BYTES


def _state(path: Path) -> tuple[int, int] | None:
    """Return time of the last change and size of a plain file that is not too large."""
    if path.is_symlink() or not path.is_file():
        return None
    status = path.stat()
    return None if status.st_size > _max_bytes(path.name) else (status.st_mtime_ns, status.st_size)


class RunMirror:
    """Uploads of one run folder. keep: number of checkpoints in the bucket. log: receives warnings.

    lease: held by this process; once it is lost, the process stops by SIGTERM.
    """

    def __init__(self, bucket: ObjectBucket, folder: Path, lease: Lease, keep: int, log: Callable[[str], None]) -> None:
        self.checkpoints = BucketCheckpoints(bucket, "checkpoints", refuse=lease.check_lost)
        self.best = BucketCheckpoints(bucket, "best", ("score.json",), lease.check_lost)
        self.files = MirroredFiles(bucket=bucket, folder=folder, refuse=lease.check_lost)
        self._folder = folder
        self._staging = folder.with_name(f"{folder.name}.upload")
        self._lease = lease
        self._keep = keep
        self._log = log
        self._uploaded: set[tuple[str, int]] = set()  # folder, and time of the manifest
        self._failure = ""  # of the newest try
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
        is_late = self._thread.is_alive()  # it fails once its files are removed
        failure = self._failure
        remove_tree(self._staging)
        if self._lease.is_lost:
            self._lease.check_lost()
        if failure or is_late:
            late = f"{self.files.bucket.address}: no response within {timeout_s:g} s"
            raise StorageError(f"the end of the run is not uploaded: {failure or late}; the same command uploads it")

    def take_as_uploaded(self, path: Path) -> None:
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
        before = self._failure
        try:
            self._upload_new(is_last)
            self._failure = ""
        except Exception as error:  # also an unexpected one: the thread must not end in silence
            self._failure = describe_error(error)
            if not before and not self._lease.is_lost:
                self._log(f"warning: {self._failure}; training continues")

    def _upload_new(self, is_last: bool) -> None:
        if is_last:
            self.files.upload()
        else:
            self.files.upload_if_due()
        for path in CheckpointWriter(folder=self._folder / "checkpoints").paths()[-1:]:
            self._upload_run(path)
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
        now = time.time()
        values = {"checkpoint": f"{checkpoints.folder}/{name}", "bytes": num_bytes}
        values["seconds"] = round(now - began, 3)
        values["behind_s"] = round(now - key[1] / 1e9, 3)  # since the checkpoint was complete
        with open_to_append(self._folder / UPLOADS) as file:
            file.write(json.dumps(values).encode() + b"\n")
        remove_tree(staged)
        return True


def _key(path: Path) -> tuple[str, int]:
    return str(path), (path / MANIFEST).stat().st_mtime_ns
