"""Sources of encoded images: decoded on demand and cached in memory up to a limit."""

from __future__ import annotations

import hashlib
import math
import operator
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core.source import EncodedSource, image_specs
from paragan.core.types import present_tensors
from paragan.datasets._batched_resize import resize_in_groups
from paragan.datasets._file_readers import FileReader
from paragan.datasets._image_paths import SplitPaths

CACHE_BYTES = 256 << 20  # of a split: 20,000 colour images of 64 px, or 500 pairs of 286 px


class EncodedImages(EncodedSource):
    """Base class of sources of encoded images.

    labels: int32 (N,), or None. decode: returns uint8 (C, height, width) from the bytes of a file and
    its name in messages; images of another size than `shape` are resized here, several at once.
    notices: warnings, one line each.

    Decoded rows are cached until `CACHE_BYTES` are used and are never evicted: every epoch reads
    every row once, so eviction would gain nothing.
    """

    def __init__(
        self,
        count: int,
        labels: NDArray[np.int32] | None,
        shape: tuple[int, int, int],
        decode: Callable[[bytes, str], NDArray[np.uint8]],
        notices: tuple[str, ...] = (),
    ) -> None:
        self.tensors = image_specs(shape, labels is not None)
        self.notices = notices
        self._count = count
        self._labels = labels
        self._decode = decode
        self._cache = np.empty((min(CACHE_BYTES // math.prod(shape), count), *shape), np.uint8)
        self._cache_index = np.full(count, -1, np.int32)
        self._num_cached = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._count

    @abstractmethod
    def read_encoded(self, rows: Sequence[int]) -> list[bytes]:
        """Return the bytes of images. Raises `DataError` that names a damaged one."""

    @abstractmethod
    def where(self, row: int) -> str:
        """Return the name of an image in messages."""

    def read(self, rows: Any) -> list[bytes]:
        """Return the bytes of images; empty for those whose pixels are cached."""
        numbers = [operator.index(row) for row in rows]
        if numbers and not 0 <= min(numbers) <= max(numbers) < len(self):
            raise IndexError(f"rows {min(numbers)} to {max(numbers)} of {len(self)}")
        missing = [row for row in numbers if self._cache_index[row] < 0]
        found = dict(zip(missing, self.read_encoded(missing), strict=True)) if missing else {}
        return [found.get(row, b"") for row in numbers]

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return uint8 images and int64 labels. Raises `DataError` that names a damaged image."""
        numbers = [operator.index(row) for row in rows]
        x_BCHW = np.empty((len(numbers), *self.shape), np.uint8)
        pixels = (self._pixels(row, data) for row, data in zip(numbers, encoded, strict=True))
        for place, x_CHW in resize_in_groups(enumerate(pixels), self.shape):
            x_BCHW[place] = x_CHW
            self._add_to_cache(numbers[place], x_CHW)
        y_B = None if self._labels is None else torch.from_numpy(self._labels[numbers].astype(np.int64))
        return present_tensors(image=torch.from_numpy(x_BCHW), label=y_B)

    def _pixels(self, row: int, data: bytes) -> NDArray[np.uint8]:
        if (index := self._cache_index[row]) >= 0:
            return self._cache[index]
        return self._decode(data, self.where(row))

    def _add_to_cache(self, row: int, pixels: NDArray[np.uint8]) -> None:
        if self._cache_index[row] >= 0:
            return
        with self._lock:
            if self._cache_index[row] < 0 and self._num_cached < len(self._cache):
                self._cache[self._num_cached] = pixels
                self._cache_index[row] = self._num_cached
                self._num_cached += 1


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
        settings: str,
        notices: tuple[str, ...] = (),
    ) -> None:
        super().__init__(len(part.paths), part.labels, shape, decode, notices)
        self.class_names = part.class_names
        self.labels = part.labels
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

    def read_encoded(self, rows: Sequence[int]) -> list[bytes]:
        """Return the bytes of files."""
        return [self._files.read(self._paths[row]) for row in rows]

    def where(self, row: int) -> str:
        """Return the name of a file in messages."""
        return self._files.where(self._paths[row])
