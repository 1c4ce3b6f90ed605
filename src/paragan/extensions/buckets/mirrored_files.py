"""Small files of a run folder and of its bucket: config, record, exit status, samples."""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from paragan.core.errors import StorageError
from paragan.core.files import create_subfolder, read_bytes
from paragan.extensions.buckets.lease import LEASE
from paragan.storage.bucket import ConflictError, ObjectBucket, StoredObject, Version
from paragan.storage.byte_store import MissingFileError

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
    _uploaded: dict[str, FileState | None] = field(default_factory=dict)  # by name; None: of another session
    _versions: dict[str, Version] = field(default_factory=dict)  # of the objects that this process has put

    def mark_uploaded(self, stored: dict[str, StoredObject]) -> None:
        """Do not upload files in subfolders of which the bucket has one of the same size.

        stored: the listing of the bucket.
        """
        if "exit.json" in stored:
            self._uploaded["exit.json"] = None  # so that the next upload replaces or removes it
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
