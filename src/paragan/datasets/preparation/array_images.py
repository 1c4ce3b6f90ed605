"""Encoded images of NumPy archives, for `data prepare`."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from paragan.datasets import npz
from paragan.datasets._encoded_images import EncodedImages


class ArrayImages(EncodedImages):
    """Images of an npz file, which is held in memory, as PNG files; splits are those of data set `npz`."""

    def __init__(self, path: Path) -> None:
        options = npz.Options(str(path))
        self._where = str(path)
        self._images_NCHW = npz.read_images(options).numpy()
        count = len(self._images_NCHW)
        labels, self.class_names = npz.read_classes(options, count)
        rows = npz.split_rows(labels, count, options.held_out)
        self._rows = np.concatenate([rows["train"].numpy(), rows["held_out"].numpy()])
        self.num_train = len(rows["train"])
        self.labels = None if labels is None else labels.numpy().astype(np.int32)[self._rows]
        self.split_hashes = np.zeros(count, np.uint32)

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Return the images as PNG files, which hold the same pixels."""
        return [self._png(self._images_NCHW[self._rows[row]]) for row in rows]

    def where(self, row: int) -> str:
        """Return file and row."""
        return f"{self._where}: image {self._rows[row]}"

    def _png(self, pixels_CHW: NDArray[np.uint8]) -> bytes:
        grey_or_colour = pixels_CHW[0] if len(pixels_CHW) == 1 else pixels_CHW.transpose(1, 2, 0)
        stream = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(grey_or_colour)).save(stream, "PNG")
        return stream.getvalue()

    def _stamps(self) -> Iterator[str]:
        yield hashlib.sha256(np.ascontiguousarray(self._images_NCHW).data).hexdigest()
