"""Cache of remote files on the local disk, with a size limit, shared by all processes of a host.

No lock is held: entries are renamed into place, and every reader compares them with a sha256.
"""

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from paragan.core.errors import DataError
from paragan.core.files import atomic_write, is_sha256, open_regular_file
from paragan.storage.byte_store import ByteRange, ByteStore, StoredFile
from paragan.storage.download import cache_dir

_CHUNK_BYTES = 8 << 20
_USED_S = 60.0  # the time of last use is stored that precisely
_CHECKED_SHARE = 1 / 64  # of the limit, written by this process before it compares the size
_FILLED_SHARE = 7 / 8  # of the limit, after entries were removed


class DiskCache:
    """Files in the folder `shards` of PARAGAN_CACHE, or ~/.cache/paragan, by the sha256 of their origin.

    limit_bytes: the least recently used entries above it are removed; 0: no blocks are cached. Each
    process may exceed it by 1/64 of the limit, less than the 1/8 that is free after a removal.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._folder = cache_dir() / "shards"
        self._lock = threading.Lock()
        self._num_unchecked = 0  # bytes written since the last comparison with the limit

    @property
    def capacity_bytes(self) -> int:
        """Bytes that stay in the cache if nothing else uses it."""
        return int(_FILLED_SHARE * self.limit_bytes)

    def read(self, sha256: str, name: str, start: int, stop: int) -> bytes | None:
        """Return a part of an entry; None if there is none of this length."""
        path = self._path(sha256, name)
        with suppress(OSError):
            with open(path, "rb", buffering=0) as file:
                content = os.pread(file.fileno(), stop - start, start)
                used = os.fstat(file.fileno()).st_mtime
            if time.time() - used > _USED_S:
                os.utime(path)
            return content if len(content) == stop - start else None
        return None

    def write(self, sha256: str, name: str, content: bytes) -> None:
        """Store an entry; without an effect if the disk is full or not writable."""
        path = self._path(sha256, name)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with atomic_write(path, mode=0o600) as file:
                file.write(content)
            self._add_written(len(content))

    def drop(self, sha256: str, name: str) -> None:
        """Remove an entry, if it exists."""
        with suppress(OSError):
            self._path(sha256, name).unlink()

    def copy(self, store: ByteStore, file: StoredFile) -> Path:
        """Return a copy of a file; it is fetched if it is missing or its sha256 differs.

        Raises `DataError` if the bytes that arrive differ twice, or the folder is not writable.
        """
        path = self._path(file.sha256, file.name)
        if _hash(path) == file.sha256:
            with suppress(OSError):
                os.utime(path)
            return path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            for _ in range(store.num_attempts):
                with atomic_write(path, mode=0o600) as stream:
                    for start in range(0, file.num_bytes, _CHUNK_BYTES):
                        stop = min(start + _CHUNK_BYTES, file.num_bytes)
                        stream.write(store.read_ranges([ByteRange(file.name, start, stop)])[0])
                if _hash(path) == file.sha256:
                    self._add_written(file.num_bytes)
                    return path
                path.unlink()
        except OSError as error:
            raise DataError(
                f"the cache {self._folder} is not writable ({error.strerror}); set PARAGAN_CACHE to a folder that is"
            ) from None
        raise DataError(
            f"{store.where(file.name)}: the bytes differ from the sha256 in dataset.json; upload the file again"
        )

    def _path(self, sha256: str, name: str) -> Path:
        # `StoredFile` refuses others: never a path of what a description says
        assert is_sha256(sha256) and "/" not in name
        return self._folder / sha256[:2] / sha256 / name

    def _add_written(self, num_bytes: int) -> None:
        """Count bytes that were written; after many, remove the oldest entries above the limit."""
        if not self.limit_bytes:
            return
        with self._lock:
            self._num_unchecked += num_bytes
            if self._num_unchecked < _CHECKED_SHARE * self.limit_bytes:
                return
            self._num_unchecked = 0
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        entries = sorted(self._entries())
        total = sum(num_bytes for _, num_bytes, _ in entries)
        if total <= self.limit_bytes * (1 - _CHECKED_SHARE):
            return
        for _, num_bytes, path in entries:
            if total <= self.capacity_bytes:
                return
            with suppress(OSError):
                os.unlink(path)
            total -= num_bytes

    def _entries(self) -> Iterator[tuple[float, int, str]]:
        """Yield the time of last use, size and path of each file."""
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(folder, name)
                with suppress(OSError):
                    status = os.lstat(path)
                    yield status.st_mtime, status.st_size, path


def _hash(path: Path) -> str:
    """Return the sha256 of a file; empty if it cannot be read."""
    with suppress(OSError), open_regular_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return ""
