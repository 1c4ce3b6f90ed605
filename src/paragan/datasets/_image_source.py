"""Source of encoded images: decoded on demand and cached in memory up to a limit."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core import rng
from paragan.core.source import EncodedSource, image_specs
from paragan.core.types import present_tensors
from paragan.datasets._batched_resize import resize_in_groups
from paragan.datasets._encoded_images import EncodedImages, Rows
from paragan.datasets._tiff_bands import Values

_UINT8 = np.dtype(np.uint8)
CACHE_BYTES = 256 << 20  # of a split: 20,000 colour images of 64 px, or 500 pairs of 286 px


class ImageSource(EncodedSource):
    """A `Source` of some rows of encoded images.

    decode: returns pixels (C, height, width) from the bytes of a file and its name in messages; uint8
    images of another size than `shape` are resized here, several at once. identify: returns the
    fingerprint. dtype: uint8 or uint16. draws_crops: `decode` also gets a random number, drawn for each
    place in the stream; no pixels are cached. notices: further warnings.

    Decoded rows are cached until `CACHE_BYTES` are used and are never evicted: every epoch reads
    every row once, so eviction would gain nothing.
    """

    def __init__(
        self,
        *,
        images: EncodedImages,
        rows: Rows,
        shape: tuple[int, int, int],
        decode: Callable[..., Values],
        identify: Callable[[], str],
        dtype: np.dtype[np.generic] = _UINT8,
        draws_crops: bool = False,
        notices: tuple[str, ...] = (),
    ) -> None:
        self.labels = None if images.labels is None else images.labels[rows]
        self.tensors = image_specs(shape, self.labels is not None, dtype=torch.from_numpy(np.empty(0, dtype)).dtype)
        self.class_names = images.class_names
        self.notices = (*images.notices, *notices)
        self._images = images
        self._rows = rows
        self._decode = decode
        self._identify = identify
        self._draws_crops = draws_crops
        num_cached = 0 if draws_crops else min(CACHE_BYTES // (math.prod(shape) * dtype.itemsize), len(rows))
        self._cache = np.empty((num_cached, *shape), dtype)
        self._cache_index = np.full(len(rows), -1, np.int32)
        self._num_cached = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def row_labels(self) -> NDArray[np.int64] | None:
        return None if self.labels is None else self.labels.astype(np.int64)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # computed when it is read
        """Hash of the settings and of what identifies the images; none is read."""
        return self._identify()

    def where(self, row: int) -> str:
        return self._images.where(int(self._rows[row]))

    def stamp(self, row: int) -> str:
        return self._images.stamp(int(self._rows[row]))

    def read(self, rows: Any) -> list[bytes]:
        """Return the bytes of images; empty for those whose pixels are cached."""
        numbers = [operator.index(row) for row in rows]
        if numbers and not 0 <= min(numbers) <= max(numbers) < len(self):
            raise IndexError(f"rows {min(numbers)} to {max(numbers)} of {len(self)}")
        missing = [row for row in numbers if self._cache_index[row] < 0]
        contents = dict(zip(missing, self._images.read(self._rows[missing].tolist()), strict=True)) if missing else {}
        return [contents.get(row, b"") for row in numbers]

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return images and int64 labels. Raises `DataError` that names a damaged image."""
        numbers = [operator.index(row) for row in rows]
        x_BCHW = np.empty((len(numbers), *self.shape), self._cache.dtype)
        is_drawn = self._draws_crops and places is not None
        draws = [(rng.key(seed, "crop", int(place)),) for place in places] if is_drawn else [()] * len(numbers)
        pixels = (self._pixels(*each) for each in zip(numbers, encoded, draws, strict=True))
        for place, x_CHW in resize_in_groups(enumerate(pixels), self.shape):
            x_BCHW[place] = x_CHW
            self._add_to_cache(numbers[place], x_CHW)
        y_B = None if self.labels is None else torch.from_numpy(self.labels[numbers].astype(np.int64))
        return present_tensors(image=torch.from_numpy(x_BCHW), label=y_B)

    def _pixels(self, row: int, data: bytes, draw: tuple[int, ...]) -> Values:
        if (index := self._cache_index[row]) >= 0:
            return self._cache[index]
        return self._decode(data, self.where(row), *draw)

    def _add_to_cache(self, row: int, pixels: Values) -> None:
        if self._cache_index[row] >= 0:
            return
        with self._lock:
            if self._cache_index[row] < 0 and self._num_cached < len(self._cache):
                self._cache[self._num_cached] = pixels
                self._cache_index[row] = self._num_cached
                self._num_cached += 1
