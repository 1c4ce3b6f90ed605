"""A split of pictures that stay where they are: decoded when they are asked for, kept as far as memory was given."""

from __future__ import annotations

import hashlib
import math
import operator
import os
import threading
import zipfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.files import open_regular_file
from paragan.datasets._image_paths import SplitPaths
from paragan.storage import zip_files

MAX_FILE_BYTES = 256 << 20  # of one file


class FileReader(Protocol):
    """Where the bytes of pictures come from."""

    def has(self, path: str) -> bool: ...

    def read(self, path: str) -> bytes: ...

    def stamp(self, path: str) -> str: ...  # size and time of change, or a checksum

    def where(self, path: str) -> str: ...  # its name in messages

    def folders(self, top: bytes) -> list[bytes]: ...  # names of the visible folders in `top`, with images or without


class FolderReader:
    """Files of a folder by their path in it."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def has(self, path: str) -> bool:
        return os.path.isfile(self.where(path))

    def read(self, path: str) -> bytes:
        """The file's bytes; a `DataError` where it is gone or too large."""
        where = self.where(path)
        try:
            with open(where, "rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                if size <= MAX_FILE_BYTES:
                    return stream.read(size)
        except OSError as error:
            raise DataError(f"{where}: found a file that cannot be read ({error.strerror}); check it") from None
        raise DataError(
            f"{where}: found a file of {size:,} bytes, expected at most {MAX_FILE_BYTES:,}; make it smaller"
        )

    def stamp(self, path: str) -> str:
        try:
            status = os.stat(self.where(path))
        except OSError:
            return "gone"
        return f"{status.st_size} {status.st_mtime_ns}"

    def where(self, path: str) -> str:
        return os.path.join(self._root, path)

    def folders(self, top: bytes) -> list[bytes]:
        with os.scandir(os.path.join(os.fsencode(self._root), top)) as entries:
            return [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(b".")]


class ZipReader:
    """Members of a zip file, read in place."""

    def __init__(self, path: Path) -> None:
        self._name = str(path)
        with zip_files.raise_data_errors(self._name), open_regular_file(path):  # a pipe would be waited for
            self.archive = zipfile.ZipFile(path)

    def has(self, path: str) -> bool:
        return path in self.archive.NameToInfo

    def read(self, path: str) -> bytes:
        """The member's bytes; a `DataError` where it is damaged or too large."""
        with zip_files.raise_data_errors(self._name):
            return zip_files.read_member(self.archive, self.archive.getinfo(path), self._name, MAX_FILE_BYTES)

    def stamp(self, path: str) -> str:
        return str(self.archive.getinfo(path).CRC)

    def where(self, path: str) -> str:
        return f"{self._name}: {path}"

    def folders(self, top: bytes) -> list[bytes]:
        names = [name for name in map(os.fsencode, self.archive.namelist()) if name.startswith(top)]
        inside = {name[len(top) :].partition(b"/")[0] for name in names if name.find(b"/", len(top)) > 0}
        return [name for name in inside if not name.startswith((b".", b"__MACOSX"))]


class ImageFiles:
    """Fulfils `core.seams.Source`. draw: uint8 (C, H, W) from a file's bytes and its name for messages.

    seal: what else than the files decides the pixels. notices: what to warn of, a line each.

    Rows are kept in memory as they come until `cache_bytes` are used, and those stay: every epoch asks for every row
    once, so giving up one row for another would gain nothing.
    """

    def __init__(
        self,
        files: FileReader,
        part: SplitPaths,
        shape: tuple[int, int, int],
        draw: Callable[[bytes, str], NDArray[np.uint8]],
        cache_bytes: int,
        seal: str,
        notices: tuple[str, ...] = (),
    ) -> None:
        self.shape, self.class_names, self.notices = shape, part.class_names, notices
        self._files, self._part, self._draw, self._seal = files, part, draw, seal
        self._kept = np.empty((min(cache_bytes // math.prod(shape), len(part.paths)), *shape), np.uint8)
        self._place = np.full(len(part.paths), -1, np.int32)
        self._num_kept = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._part.paths)

    @cached_property
    def fingerprint(self) -> str:
        """Of the settings and the paths with sizes and times of change; no file is opened."""
        digest = hashlib.blake2b(f"{self.shape} {self._seal}".encode(), digest_size=8)
        for path in self._part.paths:
            digest.update(os.fsencode(f"\0{path}\0{self._files.stamp(path)}"))
        return digest.hexdigest()

    def fetch(self, indices: Any) -> tuple[Tensor, Tensor | None]:
        """indices: int64 array (B,) in [0, N). uint8 x_BCHW and int64 y_B. `DataError` names a file that is damaged."""
        rows = [operator.index(row) for row in indices]
        if rows and not 0 <= min(rows) <= max(rows) < len(self):
            raise IndexError(f"rows {min(rows)} to {max(rows)} of {len(self)}")
        x_BCHW = np.stack([self._row(row) for row in rows]) if rows else np.empty((0, *self.shape), np.uint8)
        labels = self._part.labels
        return torch.from_numpy(x_BCHW), None if labels is None else torch.from_numpy(labels[rows].astype(np.int64))

    def _row(self, row: int) -> NDArray[np.uint8]:
        if (place := self._place[row]) >= 0:
            return self._kept[place]
        path = self._part.paths[row]
        pixels = self._draw(self._files.read(path), self._files.where(path))
        with self._lock:
            if self._place[row] < 0 and self._num_kept < len(self._kept):
                self._kept[self._num_kept] = pixels
                self._place[row] = self._num_kept
                self._num_kept += 1
        return pixels
