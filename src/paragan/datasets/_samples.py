"""Encoded images in a fixed order, from any source that `data prepare` reads."""

from __future__ import annotations

import hashlib
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from paragan.core.errors import DataError
from paragan.datasets import _image_paths, npz
from paragan.datasets._damaged_images import exclude_damaged
from paragan.datasets._file_readers import FileReader
from paragan.datasets._image_decoding import decode_image
from paragan.storage.shard_folder import ShardFolder, sample_key


class Samples(ABC):
    """Base class of encoded images in a fixed order.

    labels: int32 (N,), or None. num_train: number of training samples, which come first; None: the
    split follows from `split_hashes`, uint32 (N,). Several threads may read at the same time.
    """

    labels: NDArray[np.int32] | None = None
    class_names: tuple[str, ...] = ()
    num_train: int | None = None
    split_hashes: NDArray[np.uint32]
    notices: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.split_hashes)

    @abstractmethod
    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the encoded images of these rows; `DataError` if one cannot be read."""

    @abstractmethod
    def where(self, row: int) -> str:
        """Return the name of a sample in messages, with the file or folder that holds it."""

    def name(self, row: int) -> str:
        """Return the name of a sample among the others."""
        return self.where(row)

    def _split_by_folders(self, paths: list[bytes], where: str) -> _image_paths.PathList:
        """Set classes and splits as data set `folder` finds them; return the sorted paths in the order of rows."""
        part, self.num_train = _image_paths.all_paths(paths, where)
        self.labels = part.labels
        self.class_names = part.class_names
        is_split = self.num_train is not None
        self.split_hashes = np.zeros(len(part.paths), np.uint32) if is_split else _image_paths.split_hashes(paths)
        return part.paths

    @abstractmethod
    def _stamps(self) -> Iterator[str]:
        """Yield what identifies each sample without its content: name and size."""

    def fingerprint(self) -> str:
        """Hash names, sizes, labels and splits; a copy of the data has the same."""
        digest = hashlib.sha256(f"{len(self)} {self.num_train} {self.class_names}".encode("utf-8", "replace"))
        if self.labels is not None:
            digest.update(self.labels.tobytes())
        for stamp in self._stamps():
            digest.update(os.fsencode(f"\0{stamp}"))
        return digest.hexdigest()


class FileSamples(Samples):
    """Image files of a folder or archive, with classes and splits as data set `folder` finds them."""

    def __init__(self, files: FileReader, paths: list[bytes], damaged: str = "stop") -> None:
        if damaged == "skip":
            paths, self.notices = exclude_damaged(files, paths, decode_image, "prepare", files.name)
        self._paths = self._split_by_folders(paths, files.name)
        self._files = files

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the files, unchanged."""
        for row in range(start, stop):
            yield self._files.read(self._paths[row])

    def where(self, row: int) -> str:
        """Return the file."""
        return self._files.where(self._paths[row])

    def name(self, row: int) -> str:
        """Return the path in the folder or archive."""
        return self._paths[row]

    def _stamps(self) -> Iterator[str]:
        for path in self._paths:
            # size or checksum; the time after it differs in a copy
            yield f"{path} {self._files.stamp(path).partition(' ')[0]}"


class ArraySamples(Samples):
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

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the images as PNG files, which hold the same pixels."""
        for row in self._rows[start:stop]:
            pixels = self._images_NCHW[row]
            grey_or_colour = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
            stream = io.BytesIO()
            Image.fromarray(np.ascontiguousarray(grey_or_colour)).save(stream, "PNG")
            yield stream.getvalue()

    def where(self, row: int) -> str:
        """Return file and row."""
        return f"{self._where}: image {self._rows[row]}"

    def _stamps(self) -> Iterator[str]:
        yield hashlib.sha256(np.ascontiguousarray(self._images_NCHW).data).hexdigest()


class ShardSamples(Samples):
    """Samples of a folder of shards, for instance to resize them."""

    def __init__(self, folder: ShardFolder) -> None:
        self.folder = folder
        self.class_names = folder.description.class_names
        self.labels = folder.index["label"].copy() if self.class_names else None
        self.num_train = folder.description.num_train
        self.split_hashes = folder.index["split_hash"].copy()

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the images after a comparison with their sha256."""
        for row in range(start, stop):
            yield self.folder.read(row)

    def where(self, row: int) -> str:
        """Return shard and sample."""
        return self.folder.where(row)

    def name(self, row: int) -> str:
        """Return the name in the shard."""
        return sample_key(row)

    def _stamps(self) -> Iterator[str]:
        yield self.folder.description.index.sha256


def hash_names(names: Iterator[str]) -> NDArray[np.uint32]:
    """Return a hash of each name, from which the split follows."""
    digests = b"".join([hashlib.blake2b(os.fsencode(name), digest_size=4).digest() for name in names])
    return np.frombuffer(digests, "<u4")


def check_labels_of(labels: NDArray[np.int64], where: str) -> NDArray[np.int32]:
    """Return labels as int32; `DataError` for negative or very large numbers."""
    if len(labels) and not 0 <= labels.min() <= labels.max() < max(len(labels), 2):
        found = f"labels range from {labels.min()} to {labels.max()}"
        raise DataError(f"{where}: {found}; number the classes from 0")
    return labels.astype(np.int32)
