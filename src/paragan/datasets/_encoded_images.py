"""Encoded images in a fixed order: what training decodes, `data check` examines and `data prepare` packs."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.datasets._image_paths import ArrangedPaths, PathList
from paragan.datasets.base.file_readers import FileReader

Rows = NDArray[np.uint32]


class EncodedImages(ABC):
    """Base class of encoded images of both splits, in a fixed order.

    labels: int32 (N,), or None. num_train: number of training images, which come first; None: the
    split follows from `split_hashes`, uint32 (N,). Several threads may read at the same time.
    """

    labels: NDArray[np.int32] | None = None
    class_names: tuple[str, ...] = ()
    num_train: int | None = None
    split_hashes: NDArray[np.uint32]
    notices: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.split_hashes)

    def rows(self, split: str, held_out: float) -> Rows:
        """Return the rows of a split.

        held_out: share of the images that is held out if num_train is None, at least one and not all.
        """
        if self.num_train is not None:
            is_held_out = np.arange(len(self)) >= self.num_train
        else:
            is_held_out = self.split_hashes < held_out * 2**32
            if not is_held_out.any() or is_held_out.all():
                is_held_out = self.split_hashes == self.split_hashes.min()  # few images: hold out exactly one
        return np.flatnonzero(is_held_out == (split == "held_out")).astype(np.uint32)

    @abstractmethod
    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Return the encoded images of these rows, all in memory; `DataError` if one cannot be read."""

    def scan(self, rows: range) -> Iterator[bytes]:
        """Yield the encoded images of consecutive rows, one in memory at a time."""
        for row in rows:
            yield self.read([row])[0]

    @abstractmethod
    def where(self, row: int) -> str:
        """Return the name of an image in messages, with the file or folder that holds it."""

    def name(self, row: int) -> str:
        """Return the name of an image among the others."""
        return self.where(row)

    @abstractmethod
    def _stamps(self) -> Iterator[str]:
        """Yield what identifies each image without its content: name and size."""

    def portable_fingerprint(self) -> str:
        """Hash names, sizes, labels and splits; a copy of the data has the same."""
        digest = hashlib.sha256(f"{len(self)} {self.num_train} {self.class_names}".encode("utf-8", "replace"))
        if self.labels is not None:
            digest.update(self.labels.tobytes())
        for stamp in self._stamps():
            digest.update(os.fsencode(f"\0{stamp}"))
        return digest.hexdigest()


class FileImages(EncodedImages):
    """Image files of a folder or archive."""

    def __init__(self, files: FileReader, arranged: ArrangedPaths, notices: tuple[str, ...] = ()) -> None:
        self.labels = arranged.labels
        self.class_names = arranged.class_names
        self.num_train = arranged.num_train
        self.split_hashes = arranged.split_hashes
        self.notices = (*notices, *files.notices)
        self._files = files
        self._paths = PathList(arranged.paths)

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Return the files, unchanged."""
        return [self._files.read(self._paths[row]) for row in rows]

    def where(self, row: int) -> str:
        """Return the file."""
        return self._files.where(self._paths[row])

    def name(self, row: int) -> str:
        """Return the path in the folder or archive."""
        return self._paths[row]

    def fingerprint(self, rows: Rows, settings: str) -> str:
        """Hash settings and the paths, sizes and modification times of these rows; no file is opened."""
        digest = hashlib.blake2b(settings.encode(), digest_size=8)
        for row in rows.tolist():
            path = self._paths[row]
            digest.update(os.fsencode(f"\0{path}\0{self._files.stamp(path)}"))
        return digest.hexdigest()

    def _stamps(self) -> Iterator[str]:
        for path in self._paths:
            # size or checksum; the time after it differs in a copy
            yield f"{path} {self._files.stamp(path).partition(' ')[0]}"


def check_class_numbers(labels: NDArray[np.int64], where: str) -> NDArray[np.int32]:
    """Return labels as int32; `DataError` for negative or very large numbers."""
    if len(labels) and not 0 <= labels.min() <= labels.max() < max(len(labels), 2):
        raise DataError(f"{where}: labels range from {labels.min()} to {labels.max()}; number the classes from 0")
    return labels.astype(np.int32)
