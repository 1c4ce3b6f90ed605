"""Checkpoints in a bucket, committed by the manifest and verified on both ways."""

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from paragan.checkpoint.manifest import MANIFEST, MAX_JSON_BYTES, NewerFormat, read_manifest
from paragan.checkpoint.reader import read_checkpoint
from paragan.core.errors import CheckpointError, StorageError
from paragan.core.files import check_no_link, remove_tree
from paragan.storage.bucket import ConflictError, ObjectBucket, TooLargeError
from paragan.storage.byte_store import MissingFileError

_NAME = re.compile(r"step-\d{9,12}", re.ASCII)
_MAX_DOWNLOADS = 2  # of one checkpoint: files may be damaged on the way


class NewestDownload(NamedTuple):
    """Name of the newest undamaged checkpoint, empty without one; and the names of newer, damaged ones."""

    name: str
    damaged: list[str]


@dataclass(frozen=True)
class BucketCheckpoints:
    """Checkpoints in a folder of a bucket.

    extra: files in their folders that no manifest lists. check_lease: called before each change;
    raises an error if another process writes here.
    """

    bucket: ObjectBucket
    folder: str
    extra: tuple[str, ...] = ()
    check_lease: Callable[[], None] = lambda: None

    def committed(self) -> list[str]:
        """Return the names of the checkpoints with a manifest, oldest first."""
        return sorted(name for name, files in self._files().items() if MANIFEST in files)

    def manifest(self, name: str) -> bytes:
        """Return the manifest of a checkpoint; empty if there is none that can be read."""
        try:
            return self.bucket.read(f"{self.folder}/{name}/{MANIFEST}", MAX_JSON_BYTES)[0]
        except (MissingFileError, TooLargeError):
            return b""

    def upload(self, path: Path, name: str, before_commit: Callable[[], None]) -> int:
        """Store the checkpoint in the folder `path`, the manifest last; return the bytes sent.

        before_commit: called when only the manifest is missing. Raises `CheckpointError` if the
        files are damaged, `StorageError` if the store does not have them afterwards.
        """
        if stored := self.manifest(name):
            if stored == (path / MANIFEST).read_bytes():
                return 0
            self.withdraw(name)
        names = [*read_manifest(read_checkpoint(path).path).sums, *self.extra]  # `read_checkpoint` verifies the files
        sizes = {file: (path / file).stat().st_size for file in names}
        for file in names:
            self.check_lease()
            self.bucket.put(f"{self.folder}/{name}/{file}", path / file)
        stored_sizes = self._files().get(name, {})
        if missing := [file for file, size in sizes.items() if stored_sizes.get(file) != size]:
            where = self.bucket.where(f"{self.folder}/{name}/{missing[0]}")
            raise StorageError(f"{where}: the store confirmed the upload, and has another size; check the store")
        before_commit()
        self.check_lease()
        self._commit(name, (path / MANIFEST).read_bytes())
        return sum(sizes.values())

    def _commit(self, name: str, manifest: bytes) -> None:
        key = f"{self.folder}/{name}/{MANIFEST}"
        with suppress(ConflictError):  # an earlier try succeeded, and its response was lost
            self.bucket.put(key, manifest, new=True)
        if self.manifest(name) != manifest:
            raise StorageError(f"{self.bucket.where(key)}: not the manifest that was stored; check the store")

    def remove(self, name: str) -> None:
        """Remove a checkpoint, first its manifest."""
        self.withdraw(name)
        for file in self._files().get(name, {}):
            self.bucket.delete(f"{self.folder}/{name}/{file}")

    def withdraw(self, name: str) -> None:
        """Remove the manifest of a checkpoint, which then does not exist; its files stay."""
        self.check_lease()
        self.bucket.delete(f"{self.folder}/{name}/{MANIFEST}")

    def prune(self, keep: int, protected: Collection[str] = ()) -> None:
        """Remove all but the newest `keep` (one or more) and protected checkpoints, and unfinished older uploads.

        A folder that is newer than these is an upload under way.
        """
        newest = self.committed()[-keep:]
        for name in self._files():
            if newest and name not in (*newest, *protected) and name < newest[-1]:
                self.remove(name)

    def download(self, name: str, path: Path) -> None:
        """Replace the folder `path` by a checkpoint; `CheckpointError` if it is damaged."""
        new = path.with_name(f".tmp-{path.name}")
        check_no_link(path)
        check_no_link(new)
        for attempt in range(1, _MAX_DOWNLOADS + 1):
            remove_tree(new)
            new.mkdir(parents=True)
            try:
                self._download_files(name, new)
                break
            except NewerFormat:
                raise
            except (CheckpointError, MissingFileError, TooLargeError) as error:
                if attempt == _MAX_DOWNLOADS:
                    remove_tree(new)
                    where = self.bucket.where(f"{self.folder}/{name}")
                    # the address instead of the temporary folder
                    raise CheckpointError(str(error).replace(str(new), where)) from None
        remove_tree(path)
        new.rename(path)

    def _download_files(self, name: str, folder: Path) -> None:
        self.bucket.download(f"{self.folder}/{name}/{MANIFEST}", folder / MANIFEST, MAX_JSON_BYTES)
        max_sizes = {**read_manifest(folder).max_bytes, **dict.fromkeys(self.extra, MAX_JSON_BYTES)}
        for file, max_bytes in max_sizes.items():
            self.bucket.download(f"{self.folder}/{name}/{file}", folder / file, max_bytes)
        read_checkpoint(folder)

    def download_newest(self, path_of: Callable[[str], Path], log: Callable[[str], None]) -> NewestDownload:
        """Download the newest undamaged checkpoint.

        path_of: the folder of a checkpoint; one with the same manifest and undamaged files is not
        replaced. log: receives a line for each damaged one. Raises `CheckpointError` if all are
        damaged.
        """
        damaged: list[str] = []
        for name in reversed(self.committed()):
            try:
                if not self.is_copied(name, path_of(name)):
                    self.download(name, path_of(name))
                return NewestDownload(name, damaged)
            except NewerFormat:
                raise
            except CheckpointError as error:
                log(f"{error}; trying the one before")
                damaged.append(name)
        if damaged:
            raise CheckpointError(f"{self.bucket.address}: all checkpoints are damaged; give another --out DIR")
        return NewestDownload("", damaged)

    def is_copied(self, name: str, path: Path) -> bool:
        """Return whether the folder `path` holds this checkpoint, undamaged."""
        try:
            if (path / MANIFEST).read_bytes() != self.manifest(name):
                return False
            read_checkpoint(path)  # raises if a file is damaged
            return True
        except (OSError, CheckpointError):
            return False

    def _files(self) -> dict[str, dict[str, int]]:
        """Return the bytes of each stored file, by checkpoint and file name."""
        sizes: dict[str, dict[str, int]] = {}
        for key, stored in self.bucket.list(f"{self.folder}/").items():
            name, _, file = key.removeprefix(f"{self.folder}/").partition("/")
            if file and "/" not in file and _NAME.fullmatch(name):
                sizes.setdefault(name, {})[file] = stored.num_bytes
        return sizes
