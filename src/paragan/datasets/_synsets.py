"""Data sets whose classes are WordNet synsets (n01443537, goldfish), from folders or lists."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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
WnidList = tuple[Mapping[str, str], str]  # WNID by file name without extension, and the list in messages

WNID = re.compile(r"n\d{8}")
_WNID_AND_NAME = re.compile(r"\b(n\d{8})[ \t]+([^\r\n]+)")


def source(
    files: FileReader,
    paths: list[bytes],
    top: bytes,
    wnids: tuple[str, ...],
    read_list: Callable[[], WnidList] | None,
    words_txt: str,
    *,
    size: int | str,
    resize: Literal["lanczos", "bicubic"] = "lanczos",
) -> ImageSource:
    """Return a split of cropped and resized colour images.

    top: their folder, which ends in a slash. read_list: returns the labels of images that are in no class folders;
    None: all are. words_txt: text of that file, lines of a WNID and words. Raises `DataError` for an image without a
    label.
    """
    if read_list is None or any(WNID.fullmatch(os.fsdecode(name)) for name in folder_names(paths, top)):
        labels = _labels_from_folders(paths, top, wnids, display_path(files, top))
    else:
        labels = _labels_from_list(paths, *read_list(), wnids)
    pixels = PixelFormat(size=height_and_width(size), options=PixelOptions(resize=resize))
    settings = hashlib.blake2b(labels.tobytes(), digest_size=8).hexdigest()
    settings += " bicubic" if resize == "bicubic" else ""  # not "lanczos": fingerprints of runs of earlier versions
    names = _class_names(wnids, words_txt)
    images = FileImages(files, ArrangedPaths(paths=paths, labels=labels, class_names=names, num_train=len(paths)))
    rows = np.arange(len(paths), dtype=np.uint32)
    identify = partial(images.fingerprint, rows, f"{pixels.shape} {settings}")
    return ImageSource(images=images, rows=rows, shape=pixels.shape, decode=pixels.decode, identify=identify)


def display_path(files: FileReader, folder: bytes) -> str:
    """Return the name of a folder in messages."""
    return files.where(os.fsdecode(folder)).rstrip("/: ")


def check_wnids(folders: Iterable[str], where: str) -> tuple[str, ...]:
    """Return the sorted class folders. Raises `DataError` for other names, or fewer than two."""
    wnids = tuple(sorted(folders))
    other = next((name for name in wnids if not WNID.fullmatch(name)), None)
    if other is not None or len(wnids) < 2:
        problem = f"folder {other!r} is not a WordNet ID" if other is not None else "fewer than two class folders"
        raise DataError(
            f"{where}: {problem}; classes are folders named like n01443537; for other names pass data.name=folder"
        )
    return wnids


def read_lines(lines: Iterable[str], line_form: tuple[str, str], where: str, first: int = 1) -> WnidList:
    """Return the WNID of each image of a list. Raises `DataError` for a line that is not of the form.

    line_form: a regular expression of name and WNID, and the same in words. first: number of the first line.
    """
    wnid_of = {}
    for number, line in enumerate(lines, start=first):
        match = re.match(line_form[0], line)
        if match is None:
            raise DataError(f"{where}: line {number}: {line[:40]!r} is not {line_form[1]}; download the file again")
        wnid_of[PurePath(match[1]).stem] = match[2]
    return wnid_of, where


def _labels_from_folders(paths: list[bytes], top: bytes, wnids: tuple[str, ...], where: str) -> Labels:
    numbers = {os.fsencode(wnid): number for number, wnid in enumerate(wnids)}
    folders = (path[len(top) :].partition(b"/") for path in paths)
    labels = np.empty(len(paths), np.int32)
    for row, (name, slash, _) in enumerate(folders):
        if not slash:
            raise DataError(f"{where}: {os.fsdecode(name)!r} is next to the class folders; move it into one of them")
        if name not in numbers:
            problem = f"class {os.fsdecode(name)!r} is {_not_in_train(wnids)}"
            raise DataError(f"{where}: {problem}; remove it here or add it to train")
        labels[row] = numbers[name]
    return labels


def _labels_from_list(paths: list[bytes], wnid_of: Mapping[str, str], where: str, wnids: tuple[str, ...]) -> Labels:
    """Return the labels of images from a list. Raises `DataError` if it does not fit the images."""
    stems = [PurePath(os.fsdecode(path)).stem for path in paths]
    if len(wnid_of) != len(stems):
        raise DataError(
            f"{where}: {len(wnid_of):,} labels for {len(stems):,} images; download the images and the labels again"
        )
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    for stem in stems:
        if (wnid := wnid_of.get(stem)) is None:
            raise DataError(f"{where}: no label for {stem!r}; download the images and the labels again")
        if wnid not in numbers:
            raise DataError(f"{where}: class {wnid!r} of {stem!r} is {_not_in_train(wnids)}; check data.path")
    return np.array([numbers[wnid_of[stem]] for stem in stems], np.int32)


def _class_names(wnids: tuple[str, ...], words_txt: str) -> tuple[str, ...]:
    """Return the first word of each class, or its WNID, and both if two classes share that word."""
    words = {wnid: words.partition(",")[0].strip() for wnid, words in _WNID_AND_NAME.findall(words_txt)}
    names = [words.get(wnid) or wnid for wnid in wnids]
    counts = Counter(names)
    return tuple(f"{name} ({wnid})" if counts[name] > 1 else name for name, wnid in zip(names, wnids, strict=True))


def _not_in_train(wnids: tuple[str, ...]) -> str:
    return f"not one of the {len(wnids)} classes in train"
