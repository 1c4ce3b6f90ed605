"""Data sets whose classes are WordNet synsets (n01443537, goldfish), from folders or lists."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import PurePath
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.core.option_types import height_and_width
from paragan.datasets._image_paths import ArrangedPaths, folder_names
from paragan.datasets._image_source import ImageSource
from paragan.datasets._options import PixelOptions
from paragan.datasets._pixel_format import PixelFormat
from paragan.datasets.base.file_readers import FileReader
from paragan.datasets.base.open_images import FileImages

Labels = NDArray[np.int32]

_WNID = re.compile(r"n\d{8}")
_WNID_AND_NAME = re.compile(r"\b(n\d{8})[ \t]+([^\r\n]+)")


def source(
    files: FileReader,
    paths: list[bytes],
    labels: Labels,
    names: tuple[str, ...],
    size: int | str,
    resize: Literal["lanczos", "bicubic"] = "lanczos",
) -> ImageSource:
    """Return a source of cropped and resized colour images. labels: index into `names` of each."""
    pixels = PixelFormat(size=height_and_width(size), options=PixelOptions(resize=resize))
    settings = hashlib.blake2b(labels.tobytes(), digest_size=8).hexdigest()
    settings += " bicubic" if resize == "bicubic" else ""
    images = FileImages(files, ArrangedPaths(paths=paths, labels=labels, class_names=names, num_train=len(paths)))
    rows = images.rows("train", held_out=0)
    identify = partial(images.fingerprint, rows, f"{pixels.shape} {settings}")
    return ImageSource(images=images, rows=rows, shape=pixels.shape, decode=pixels.decode, identify=identify)


def check_wnids(folders: Iterable[str], where: str) -> tuple[str, ...]:
    """Return the sorted class folders. Raises `DataError` for other names, or fewer than two."""
    wnids = tuple(sorted(folders))
    other = next((name for name in wnids if not _WNID.fullmatch(name)), None)
    if other is not None or len(wnids) < 2:
        problem = f"folder {other!r} is not a WordNet ID" if other is not None else "fewer than two class folders"
        raise DataError(
            f"{where}: {problem}; classes are folders named like n01443537; for other names pass data.name=folder"
        )
    return wnids


def has_class_folders(paths: list[bytes], top: bytes) -> bool:
    """Return whether the images in `top` are in class folders."""
    return any(_WNID.fullmatch(os.fsdecode(name)) for name in folder_names(paths, top))


def labels_from_folders(paths: list[bytes], top: bytes, wnids: tuple[str, ...], where: str) -> Labels:
    """Return the labels of images in top/WNID. Raises `DataError` for an image elsewhere."""
    numbers = {os.fsencode(wnid): number for number, wnid in enumerate(wnids)}
    folders = (path[len(top) :].partition(b"/") for path in paths)
    labels = np.fromiter((numbers.get(name, -1) if slash else -2 for name, slash, _ in folders), np.int32, len(paths))
    if not (labels < 0).any():
        return labels
    row = int((labels < 0).argmax())
    name = os.fsdecode(paths[row][len(top) :].partition(b"/")[0])
    if labels[row] == -2:
        raise DataError(f"{where}: {name!r} is next to the class folders; move it into one of them")
    raise DataError(f"{where}: class {name!r} is {_not_in_train(wnids)}; remove it here or add it to train")


def labels_from_list(paths: list[bytes], class_of: Mapping[str, str], wnids: tuple[str, ...], where: str) -> Labels:
    """Return the labels of images from a list. Raises `DataError` if it does not fit the images.

    class_of: WNID by file name without extension. where: the list.
    """
    stems = [PurePath(os.fsdecode(path)).stem for path in paths]
    if len(class_of) != len(stems):
        raise DataError(
            f"{where}: {len(class_of):,} labels for {len(stems):,} images; download the images and the labels again"
        )
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    for stem in stems:
        if (wnid := class_of.get(stem)) is None:
            raise DataError(f"{where}: no label for {stem!r}; download the images and the labels again")
        if wnid not in numbers:
            raise DataError(f"{where}: class {wnid!r} of {stem!r} is {_not_in_train(wnids)}; check data.path")
    return np.array([numbers[class_of[stem]] for stem in stems], np.int32)


def class_names(wnids: tuple[str, ...], text: str) -> tuple[str, ...]:
    """Return the name of each class: its first word, with the WNID if two classes share that name.

    text: lines of a WNID and words, as in words.txt; the WNID names a class that is not listed.
    """
    words = {wnid: words.partition(",")[0].strip() for wnid, words in _WNID_AND_NAME.findall(text)}
    names = [words.get(wnid) or wnid for wnid in wnids]
    counts = Counter(names)
    return tuple(f"{name} ({wnid})" if counts[name] > 1 else name for name, wnid in zip(names, wnids, strict=True))


def find_wnids(text: str) -> set[str]:
    """Return all WNIDs in a text."""
    return set(_WNID.findall(text))


def _not_in_train(wnids: tuple[str, ...]) -> str:
    return f"not one of the {len(wnids)} classes in train"
