"""Pictures whose classes are synsets of WordNet (n01443537, a goldfish): labels from folders or a list, and names."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.datasets import folder
from paragan.datasets._image_files import FileReader, ImageFiles
from paragan.datasets._image_paths import PathList, SplitPaths, folder_names

Labels = NDArray[np.int32]

_WNID = re.compile(r"n\d{8}")
_WNID_AND_NAME = re.compile(r"\b(n\d{8})[ \t]+([^\r\n]+)")


def source(
    files: FileReader, paths: list[bytes], labels: Labels, names: tuple[str, ...], size: int, cache_mb: int
) -> ImageFiles:
    """Colour, the largest square in the middle, brought to this size. labels: index into names for each path."""
    options = folder.Options(size=size)  # type: ignore[arg-type]
    seal = hashlib.blake2b(labels.tobytes(), digest_size=8).hexdigest()
    part = SplitPaths(PathList(paths), labels, names)
    return ImageFiles(files, part, (3, size, size), partial(folder.decode_resized, options), cache_mb << 20, seal)


def check_wnids(folders: Iterable[str], where: str) -> tuple[str, ...]:
    """The classes: these folders in `where`, sorted. Raises `DataError` where one is called otherwise, or is alone."""
    wnids = tuple(sorted(folders))
    other = next((name for name in wnids if not _WNID.fullmatch(name)), None)
    if other is not None or len(wnids) < 2:
        found = f"the folder {other!r}" if other is not None else f"{'one' if wnids else 'no'} folder of a class"
        expected = "two or more, called as in WordNet: n01443537"
        raise DataError(f"{where}: found {found}, expected {expected}; data.name=folder takes any")
    return wnids


def has_class_folders(paths: list[bytes], top: bytes) -> bool:
    """Whether the pictures in `top` lie in folders of classes."""
    return any(_WNID.fullmatch(os.fsdecode(name)) for name in folder_names(paths, len(top)))


def labels_from_folders(paths: list[bytes], top: bytes, wnids: tuple[str, ...], where: str) -> Labels:
    """Labels of pictures in top/WNID. Raises `DataError` where one lies beside the folders, or in one of no class."""
    numbers = {os.fsencode(wnid): number for number, wnid in enumerate(wnids)}
    folders = (path[len(top) :].partition(b"/") for path in paths)
    labels = np.fromiter((numbers.get(name, -1) if slash else -2 for name, slash, _ in folders), np.int32, len(paths))
    if not (labels < 0).any():
        return labels
    row = int((labels < 0).argmax())
    name = os.fsdecode(paths[row][len(top) :].partition(b"/")[0])
    if labels[row] == -2:
        raise DataError(f"{where}: found {name!r} beside the folders of the classes; move it into one")
    raise DataError(f"{where}: found the class {name!r}, {_expected_class(wnids)}; remove it here or add it there")


def labels_from_list(paths: list[bytes], class_of: Mapping[str, str], wnids: tuple[str, ...], where: str) -> Labels:
    """Labels of pictures by a list, `where`, of their names without the ending, and WNIDs.

    Raises `DataError` where it lists more, fewer or other pictures, or a class that there is not.
    """
    stems = [PurePath(os.fsdecode(path)).stem for path in paths]
    if len(class_of) != len(stems):
        found = f"labels of {len(class_of):,} pictures"
        raise DataError(f"{where}: found {found}, expected {len(stems):,}, as there are; get the pictures and it again")
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    for stem in stems:
        if (wnid := class_of.get(stem)) is None:
            raise DataError(f"{where}: found no label of {stem!r}, expected one; get the pictures and it again")
        if wnid not in numbers:
            raise DataError(f"{where}: found the class {wnid!r} of {stem!r}, {_expected_class(wnids)}; check data.path")
    return np.array([numbers[class_of[stem]] for stem in stems], np.int32)


def class_names(wnids: tuple[str, ...], text: str) -> tuple[str, ...]:
    """What the classes are called: the first of their words. Where two are called alike, their numbers are added.

    text: lines of a WNID and words, as in words.txt; a class that is not in it is called by its number.
    """
    words = {wnid: words.partition(",")[0].strip() for wnid, words in _WNID_AND_NAME.findall(text)}
    names = [words.get(wnid) or wnid for wnid in wnids]
    alike = Counter(names)
    return tuple(f"{name} ({wnid})" if alike[name] > 1 else name for name, wnid in zip(names, wnids, strict=True))


def find_wnids(text: str) -> set[str]:
    """All WNIDs in a text."""
    return set(_WNID.findall(text))


def _expected_class(wnids: tuple[str, ...]) -> str:
    return f"expected one of the {len(wnids)} classes in train"
