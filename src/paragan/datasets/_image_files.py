"""Sources of encoded images: decoded on demand and cached in memory up to a limit."""

from __future__ import annotations

import hashlib
import math
import operator
import os
import threading
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core.source import Source, image_specs
from paragan.core.types import present_tensors
from paragan.datasets._file_readers import FileReader
from paragan.datasets._image_paths import SplitPaths


class EncodedImages(Source):
    """Base class of sources of encoded images.

    labels: int32 (N,), or None. decode: returns uint8 (C, H, W) from the bytes of a file and its
    name in messages. notices: warnings, one line each.

    Decoded rows are cached until `cache_bytes` are used and are never evicted: every epoch reads
    every row once, so eviction would gain nothing.
    """

    is_decoded = True

    def __init__(
        self,
        count: int,
        labels: NDArray[np.int32] | None,
        shape: tuple[int, int, int],
        decode: Callable[[bytes, str], NDArray[np.uint8]],
        cache_bytes: int,
        notices: tuple[str, ...] = (),
    ) -> None:
        self.tensors = image_specs(shape, labels is not None)
        self.notices = notices
        self._labels = labels
        self._decode = decode
        self._cache = np.empty((min(cache_bytes // math.prod(shape), count), *shape), np.uint8)
        self._cache_index = np.full(count, -1, np.int32)
        self._num_cached = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._cache_index)

    @abstractmethod
    def read_encoded(self, row: int) -> tuple[bytes, str]:
        """Return the bytes of an image and its name in messages."""

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return uint8 images and int64 labels. indices: int64 array (B,) in [0, N).

        Raises `DataError` that names a damaged file.
        """
        rows = [operator.index(row) for row in indices]
        if rows and not 0 <= min(rows) <= max(rows) < len(self):
            raise IndexError(f"rows {min(rows)} to {max(rows)} of {len(self)}")
        x_BCHW = np.stack([self._row(row) for row in rows]) if rows else np.empty((0, *self.shape), np.uint8)
        y_B = None if self._labels is None else torch.from_numpy(self._labels[rows].astype(np.int64))
        return present_tensors(image=torch.from_numpy(x_BCHW), label=y_B)

    def _row(self, row: int) -> NDArray[np.uint8]:
        if (index := self._cache_index[row]) >= 0:
            return self._cache[index]
        pixels = self._decode(*self.read_encoded(row))
        with self._lock:
            if self._cache_index[row] < 0 and self._num_cached < len(self._cache):
                self._cache[self._num_cached] = pixels
                self._cache_index[row] = self._num_cached
                self._num_cached += 1
        return pixels


class ImageFiles(EncodedImages):
    """A `Source` of image files, read in place.

    settings: what determines the pixels besides the files, for the fingerprint.
    """

    def __init__(
        self,
        files: FileReader,
        part: SplitPaths,
        shape: tuple[int, int, int],
        decode: Callable[[bytes, str], NDArray[np.uint8]],
        cache_bytes: int,
        settings: str,
        notices: tuple[str, ...] = (),
    ) -> None:
        super().__init__(len(part.paths), part.labels, shape, decode, cache_bytes, notices)
        self.class_names = part.class_names
        self._files = files
        self._paths = part.paths
        self._settings = settings

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # computed when it is read
        """Hash of the settings and all paths, sizes and modification times; no file is opened."""
        digest = hashlib.blake2b(f"{self.shape} {self._settings}".encode(), digest_size=8)
        for path in self._paths:
            digest.update(os.fsencode(f"\0{path}\0{self._files.stamp(path)}"))
        return digest.hexdigest()

    def read_encoded(self, row: int) -> tuple[bytes, str]:
        """Return the bytes of a file and its name in messages."""
        path = self._paths[row]
        return self._files.read(path), self._files.where(path)
