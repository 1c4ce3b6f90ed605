"""Encoded images in a fixed order: what training decodes, `data check` examines and `data prepare` packs."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.core.printable import counted, join_some
from paragan.datasets._class_numbers import number_classes
from paragan.storage.shard_folder import INDEX, ShardFolder, sample_key

Rows = NDArray[np.uint32]


def counts_images(kind: str) -> bool:
    """Return whether files of a kind (`EncodedImages.ignored`) are images: `images of other splits`, not `.txt`."""
    return kind.startswith("images")


class EncodedImages(ABC):
    """Base class of encoded images of both splits, in a fixed order.

    labels: int32 (N,), or None. num_train: number of training images, which come first; None: the
    split follows from `split_hashes`, uint32 (N,). notices: warnings, a line each. ignored: number of
    files that are not read, by kind: `.jfif`, or "images of other splits". has_label_file: labels are not in names, so
    the fingerprint needs them, too. noun: of the samples, in messages. Several threads may read at the same time.
    """

    labels: NDArray[np.int32] | None = None
    class_names: tuple[str, ...] = ()
    num_train: int | None = None
    split_hashes: NDArray[np.uint32]
    notices: tuple[str, ...] = ()
    ignored: Mapping[str, int] = MappingProxyType({})
    has_label_file: bool = False
    noun: str = "images"
    needs_every_class: bool = False  # in both splits, as translation between two kinds does

    def __len__(self) -> int:
        return len(self.split_hashes)

    @property
    def num_ignored_images(self) -> int:
        """Number of images that are not read."""
        return sum(count for kind, count in self.ignored.items() if counts_images(kind))

    def rows(self, split: str, held_out: float) -> Rows:
        """Return the rows of a split.

        held_out: share of the images that is held out if num_train is None, at least one and not all.
        """
        return np.flatnonzero(self.are_held_out(held_out) == (split == "held_out")).astype(np.uint32)

    def are_held_out(self, share: float) -> NDArray[np.bool_]:
        """Return which images are held out; without num_train those of low hashes, so that an image stays in its split.

        The image of the highest hash of each class is trained on; that of the lowest is held out where the
        share of the class is an image or more.
        """
        if self.num_train is not None:
            return np.arange(len(self)) >= self.num_train
        labels = np.zeros(len(self), np.int32) if self.labels is None else self.labels
        order = np.lexsort((self.split_hashes, labels))  # by class, then by hash
        starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
        sizes = np.diff(starts, append=len(order))
        is_held_out = self.split_hashes < share * 2**32
        has_share = (sizes * share >= 1) | self.needs_every_class
        is_held_out[order[starts[has_share]]] = True
        is_held_out[order[starts + sizes - 1]] = False
        if not is_held_out.any():  # few images: hold out exactly one, of a class of several if there is one
            lowest = order[starts[sizes == sizes.max()]]
            is_held_out[lowest[self.split_hashes[lowest].argmin()]] = True
        return is_held_out

    def class_sizes(self, rows: Rows | None = None) -> list[int]:
        """Return the number of images of each class, of all rows or some; empty without labels."""
        if self.labels is None:
            return []
        return np.bincount(self.labels if rows is None else self.labels[rows], minlength=len(self.class_names)).tolist()

    def describe(self, held_out: float = 0.1, labels: bool = True, num_left_out: int = 0) -> str:
        """Return one line of what is read, and what a run makes of it.

        labels: whether it trains with them. num_left_out: held-out images of classes that it does not train on.
        """
        classes = f" in {counted(len(self.class_names), 'class')}" if self.class_names else ""
        num_train = len(self.rows("train", held_out))
        num_used = num_train + num_left_out
        facts = ["labels drawn as in the data"] if self.class_names and labels else []
        return f"{len(self):,} {self.noun}{classes}: trains on {num_train:,}, {self.describe_rest(num_used, *facts)}"

    def describe_rest(self, num_train: int, *facts: str) -> str:
        """Return what is not trained on, with facts in between."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.ignored.items())
        return "; ".join([f"holds out {len(self) - num_train:,}", *facts, *([f"ignored: {kinds}"] if kinds else [])])

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
        return self.where(row)

    def stamp(self, row: int) -> str:
        """Return what identifies the content of an image without reading it: size or checksum, then its time."""
        return ""

    def fingerprint(self, rows: Rows, settings: str) -> str:
        """Hash settings and the names and stamps of these rows; no image is read."""
        digest = hashlib.blake2b(settings.encode(), digest_size=8)
        if self.has_label_file and self.labels is not None:
            digest.update(f"{self.class_names}".encode("utf-8", "replace") + self.labels[rows].tobytes())
        for row in rows.tolist():
            digest.update(os.fsencode(f"\0{self.name(row)}\0{self.stamp(row)}"))
        return digest.hexdigest()

    def _portable_stamps(self) -> Iterator[str]:
        """Yield what identifies the images in any copy of the data."""
        for row in range(len(self)):
            # size or checksum; the time after it differs in a copy
            yield f"{self.name(row)} {self.stamp(row).partition(' ')[0]}"

    def portable_fingerprint(self) -> str:
        """Hash names, sizes, labels and splits; a copy of the data has the same."""
        digest = hashlib.sha256(f"{len(self)} {self.num_train} {self.class_names}".encode("utf-8", "replace"))
        if self.labels is not None:
            digest.update(self.labels.tobytes())
        for stamp in self._portable_stamps():
            digest.update(os.fsencode(f"\0{stamp}"))
        return digest.hexdigest()


class SelectedImages(EncodedImages):
    """Some rows of other images, in their order; a class without rows is dropped."""

    def __init__(self, images: EncodedImages, rows: Rows, notices: tuple[str, ...]) -> None:
        self.num_train = None if images.num_train is None else int((rows < images.num_train).sum())
        self.split_hashes = images.split_hashes[rows]
        self.ignored = images.ignored
        self.has_label_file = images.has_label_file
        self.noun = images.noun
        self.needs_every_class = images.needs_every_class
        self._images = images
        self._rows = rows
        dropped: list[str] = []
        if images.labels is not None:
            used, labels = np.unique(images.labels[rows], return_inverse=True)
            self.labels = labels.astype(np.int32)
            self.class_names = tuple(images.class_names[label] for label in used)
            dropped = sorted(set(images.class_names) - set(self.class_names))
        self.notices = (*notices, *images.notices, *describe_empty_classes(dropped))

    def are_held_out(self, share: float) -> NDArray[np.bool_]:
        """Return which images are held out: those that were among all images, unless a split lacked images then."""
        is_held_out = self._images.are_held_out(share)[self._rows]
        # of each class where every class is needed, or else of all
        labels = self.labels if self.needs_every_class and self.labels is not None else np.zeros(len(self), int)
        num_held_out = np.bincount(labels, is_held_out)
        is_complete = ((num_held_out > 0) & (num_held_out < np.bincount(labels))).all()
        return is_held_out if is_complete else super().are_held_out(share)

    def read(self, rows: Sequence[int]) -> list[bytes]:
        return self._images.read(self._rows[list(rows)].tolist())

    def where(self, row: int) -> str:
        return self._images.where(int(self._rows[row]))

    def name(self, row: int) -> str:
        return self._images.name(int(self._rows[row]))

    def stamp(self, row: int) -> str:
        return self._images.stamp(int(self._rows[row]))


class ShardImages(EncodedImages):
    """Images of a folder of shards; each is compared with its sha256 when read."""

    def __init__(self, folder: ShardFolder, notices: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.num_train = folder.description.num_train
        self.split_hashes = folder.index["split_hash"]
        self.notices = notices
        names = folder.description.class_names
        if names:
            labels = folder.index["label"]
            if not 0 <= labels.min() <= labels.max() < len(names):
                raise DataError(
                    f"{folder.address}/{INDEX}: labels range from {labels.min()} to {labels.max()} for "
                    f"{len(names)} classes; the index is damaged: prepare the data again"
                )
            self.labels, self.class_names, class_notices = number_classes(labels, f"{folder.address}/{INDEX}", names)
            self.notices = (*notices, *class_notices)

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Return the images; neighbours in a remote shard share a request."""
        return self.folder.read_rows(rows)

    def where(self, row: int) -> str:
        return self.folder.where(row)

    def name(self, row: int) -> str:
        return sample_key(row)

    def stamp(self, row: int) -> str:
        return bytes(self.folder.index["sha256"][row]).hex()

    def _portable_stamps(self) -> Iterator[str]:
        yield self.folder.description.index.sha256


def describe_empty_classes(names: Sequence[str], has_classes: bool = True) -> tuple[str, ...]:
    """Return a warning that names folders without images, if there are some."""
    if not names:
        return ()
    named = join_some([repr(name) for name in names])
    no_classes = "" if has_classes else "; fewer than two folders have images, so no classes are left"
    return (f"folders without images are not classes: {named}{no_classes}",)
