"""Images of two kinds without pairs, for translation between them.

Source: your files, as in `folder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core import rng
from paragan.core.errors import ConfigError, DataError
from paragan.core.printable import counted
from paragan.core.source import EncodedSource, Source, TensorSpec
from paragan.datasets import folder
from paragan.datasets._encoded_images import EncodedImages
from paragan.datasets._image_source import ImageSource
from paragan.datasets._options import FolderOptions
from paragan.datasets._pair_files import TwoSides, find_sides
from paragan.datasets.base.open_images import FileImages, open_encoded_images
from paragan.datasets.base.open_reader import list_images


@dataclass(frozen=True, kw_only=True)
class Options(FolderOptions):
    """A folder, .zip or .tar file with a sub-folder of images for each kind, A and B."""

    a: str | None = None
    """Name of A's sub-folder, such as `trainA`; null: the first of two."""
    b: str | None = None
    """Name of B's sub-folder; null: the second of two."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return `both` (channels, height, 2 * width): an image of A at the left, one of B at the right.

    An epoch has every image of A once; each is next to a random image of B, in the held-out split
    next to the one of its number. Raises `DataError` as `folder` does, and without the two kinds.
    """
    if options.flip:
        raise ConfigError("data.flip=true would exchange A and B; use data.flip=false")
    images, kinds, _ = open_kinds(options)
    data = folder.source(options, split, images)
    rows_a, rows_b = (_rows(data, name, split) for name in kinds)
    unpaired = _Unpaired(data, rows_a, rows_b, split == "train")
    unpaired.reading = describe_kinds(images, kinds, options.held_out)
    return unpaired


def open_kinds(options: Options) -> tuple[EncodedImages, Sequence[str], TwoSides | None]:
    """Return images of classes, the names of the classes A and B, and the sides that their files are named as.

    Folders named as two sides (trainA/ and trainB/) come first, with testA/ and testB/ held out; else every sub-folder
    is a class, and there are no sides.
    """
    images, kinds, sides = _open_sides(options) or (*_open_folders(options), None)
    images.needs_every_class = True  # in both splits, or an image would have no partner
    return images, kinds, sides


def _open_sides(options: Options) -> tuple[EncodedImages, Sequence[str], TwoSides] | None:
    """Return the files of two sides, in the order of data.a and data.b; None if there are none of these names."""
    try:
        files, paths = list_images(options.path, "unpaired")
        sides = find_sides(paths)
    except DataError:  # for what is no folder or archive of files
        return None
    if sides is None:
        return None
    for kinds in (sides.names, sides.names[::-1]):  # data.a may name the second one
        wanted = zip((options.a, options.b), kinds, strict=True)
        # the name of a side lists its folders: "trainA/, testA/"
        if all(name is None or f"{name}/" in kind.split(", ") for name, kind in wanted):
            return FileImages(files, sides.arrange(options.path)), kinds, sides
    return None


def _open_folders(options: Options) -> tuple[EncodedImages, Sequence[str]]:
    """Return images whose classes are the sub-folders, and the names of two of them."""
    images = open_encoded_images(options.path, classes="folders")
    names = images.class_names
    if options.a is None and options.b is None and len(names) == 2:
        return images, names
    if options.a in names and options.b in names and options.a != options.b:
        return images, (options.a, options.b)
    listed = ", ".join(names) or "none"
    raise DataError(
        f"data.path={options.path}: data unpaired needs two sub-folders of images, but these are there: {listed}; "
        "pass data.a=NAME data.b=NAME"
    )


def _rows(data: ImageSource, name: str, split: str) -> NDArray[Any]:
    label = data.class_names.index(name) if name in data.class_names else -1  # -1: no image here is of it
    rows = np.flatnonzero(data.labels == label)
    if not len(rows):
        part = "training" if split == "train" else "held-out"
        raise DataError(f"data.path: {name!r} has no {part} images; pass another data.held_out")
    return rows


def describe_kinds(images: EncodedImages, kinds: Sequence[str], held_out: float) -> str:
    """Return what A and B are read from, and how many images are held out and not read."""
    num_others = len(images) + images.num_ignored_images
    sizes = images.class_sizes()
    sizes_held_out = images.class_sizes(images.rows("held_out", held_out))
    texts = []
    for letter, name in zip("AB", kinds, strict=True):
        kind = images.class_names.index(name)
        num_others -= sizes[kind]
        texts.append(f"{letter} from {name}: {counted(sizes[kind], 'image')}, {sizes_held_out[kind]:,} held out")
    return "; ".join(texts) + (f"; {num_others:,} other images are not read" if num_others else "")


class _Unpaired(EncodedSource):
    """Rows of A in order, next to rows of B."""

    def __init__(self, images: ImageSource, a: NDArray[Any], b: NDArray[Any], is_random: bool) -> None:
        self.images = images
        self.a = a
        self.b = b
        self.is_random = is_random
        channels, height, width = images.shape
        self.tensors = {"both": TensorSpec((channels, height, 2 * width), images.tensors["image"].dtype)}
        self.notices = images.notices
        # a[0], b[0]: no row is of both, so the first ones tell which class is A
        self.fingerprint = f"{images.fingerprint} unpaired {len(a)} {len(b)} {a[0]} {b[0]}"

    def __len__(self) -> int:
        return len(self.a)

    def read(self, rows: Any) -> Sequence[bytes]:
        numbers = np.asarray(rows)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise IndexError(f"rows {numbers.min()} to {numbers.max()} of {len(self)}")
        return self.images.read(self.a[numbers])

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> Mapping[str, Tensor]:
        numbers = np.asarray(rows)
        left = self.images.decode(encoded, self.a[numbers], places, seed)["image"]
        is_drawn = self.is_random and places is not None
        # by the place in the stream, not the row of A: each epoch has other pairs, a resumed run the same
        partners = [rng.key(seed, "unpaired", int(place)) for place in places] if is_drawn else numbers
        rows_b = self.b[np.array([int(number % len(self.b)) for number in partners])]
        right = self.images.fetch(rows_b, places, seed)["image"]  # read here, since `read` knows no places
        return {"both": torch.cat([left, right], 3)}
