"""Images of an .npz or .npy file for the check of a data set, as if they were files."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from paragan.datasets import npz
from paragan.datasets._encoded_images import EncodedImages
from paragan.datasets.base.in_memory import InMemorySource


class ArrayImages(EncodedImages):
    """Images of data set `npz`, the training images first, encoded when they are read. Errors as of `npz.source`."""

    def __init__(self, path: str) -> None:
        self._path = path
        train, held_out = self._splits = [_source(path, "train"), _source(path, "held_out")]
        self.num_train = len(train)
        self.split_hashes = np.zeros(len(train) + len(held_out), np.uint32)
        self.class_names = train.class_names
        self.notices = train.notices
        labels = [split.labels_N.numpy() for split in self._splits if split.labels_N is not None]
        self.labels = np.concatenate(labels).astype(np.int32) if labels else None

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Return the images as PNG files."""
        return [self._encode(row) for row in rows]

    def where(self, row: int) -> str:
        """Return file and number among the images of its split."""
        first = row < len(self._splits[0])
        return f"{self._path}: {'training' if first else 'held-out'} image {row - (not first) * len(self._splits[0])}"

    def _encode(self, row: int) -> bytes:
        train, held_out = self._splits
        x_CHW = train.images_NCHW[row] if row < len(train) else held_out.images_NCHW[row - len(train)]
        stream = io.BytesIO()
        Image.fromarray(x_CHW.permute(1, 2, 0).squeeze(2).contiguous().numpy()).save(stream, "PNG", compress_level=0)
        return stream.getvalue()


def _source(path: str, split: str) -> InMemorySource:
    source = npz.source(npz.Options(path=path), "train" if split == "train" else "held_out")
    assert isinstance(source, InMemorySource)
    return source
