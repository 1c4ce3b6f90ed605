"""Files of a run folder other than checkpoints, copied to a bucket and back."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paragan.core.files import read_bytes, refuse_link
from paragan.storage.bucket import ObjectBucket, StoredObject
from paragan.storage.lease import LEASE

_FOLDERS = ("samples", "judge", "tensorboard")  # the rest is of one machine, or checkpoints
_SKIPPED = ("run.lock", LEASE)
_NAME = re.compile(r"[\w+-][\w+. -]{0,200}(/[\w+-][\w+. -]{0,200})?")  # none hidden
_MAX_BYTES = 1 << 30  # larger files are not copied
_PERIOD_S = 15.0
_SHARE = 1 / 20  # of the time, at most, for the record, which is stored as a whole each time


@dataclass
class MirroredFiles:
    """Small files of a run folder and of its bucket: config, record, exit status, samples.

    refuse: called before each change of the bucket.
    """

    bucket: ObjectBucket
    folder: Path
    refuse: Callable[[], None] = lambda: None
    _uploaded: dict[str, tuple[int, int]] = field(default_factory=dict)  # time and size by name
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
            self.refuse()
            try:
                content = read_bytes(self.folder / name, _MAX_BYTES)
            except FileNotFoundError:
                continue  # removed meanwhile
            if name.endswith(".jsonl"):
                content = content[: content.rfind(b"\n") + 1]
            self.bucket.put(name, content)
            self._uploaded[name] = state
        self._remove_exit()
        now = time.monotonic()
        self._due = now + max(_PERIOD_S, (now - began) / _SHARE)

    def _remove_exit(self) -> None:
        """Remove the exit status of a former session, as the folder's was."""
        if "exit.json" in self._uploaded and not (self.folder / "exit.json").exists():
            self.bucket.delete("exit.json")
            del self._uploaded["exit.json"]

    def download(self) -> dict[str, StoredObject]:
        """Download all files that differ in size or time; return the listing of the bucket."""
        stored = self.bucket.list()
        for name, found in stored.items():
            path = self.folder / name
            modified_ns = int(found.modified * 1e9)
            if not _is_mirrored(name) or found.num_bytes > _MAX_BYTES:
                continue
            if _state(path) == (modified_ns, found.num_bytes):
                continue
            refuse_link(path.parent)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.bucket.download(name, path)
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


def _state(path: Path) -> tuple[int, int] | None:
    """Return time of the last change and size of a plain file that is not too large."""
    if path.is_symlink() or not path.is_file():
        return None
    status = path.stat()
    return None if status.st_size > _MAX_BYTES else (status.st_mtime_ns, status.st_size)
