"""Which pictures there are under a folder or in a zip file, which part and class each belongs to, kept compactly."""

from __future__ import annotations

import os
import zipfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.datasets._image_decoding import EXTENSIONS

_HELD_OUT = (b"held_out", b"val", b"valid", b"validation", b"test")  # the first that is there
_AFTER_SLASH = bytes([ord("/") + 1])
_MAX_LINK_PATHS = 64
_EXTENSIONS = tuple(ending.encode() for ending in EXTENSIONS)


class PathList:
    """Paths as one piece of bytes: some 40 bytes each, where a list of `Path` needs hundreds."""

    def __init__(self, paths: list[bytes]) -> None:
        self._all = b"".join(paths)
        self._ends = np.cumsum([0, *map(len, paths)])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> str:
        return os.fsdecode(self._all[self._ends[row] : self._ends[row + 1]])


@dataclass(frozen=True)
class SplitPaths:
    """The paths of one part in sorted order. labels: index into class_names for each; None: no classes."""

    paths: PathList
    labels: NDArray[np.int32] | None
    class_names: tuple[str, ...]


def find_images(root: Path) -> list[bytes]:
    """Relative paths of all pictures in a folder, by their ending, sorted; hidden files and folders are left out.

    Links are followed, but none back to a folder that it lies in. No picture is opened.
    Raises `DataError` where a folder cannot be listed, or links lead to it by more than 64 ways: among n folders that
    link to one another there are 2ⁿ ways and more.
    """
    try:
        return sorted(_walk(os.fsencode(root), b"", frozenset(), Counter()))
    except OSError as error:
        name = os.fsdecode(error.filename)
        raise DataError(f"{name}: found a folder that cannot be listed ({error.strerror}), check it") from None


def find_images_in_zip(archive: zipfile.ZipFile) -> list[bytes]:
    """The same of a zip file."""
    names = (os.fsencode(info.filename) for info in archive.infolist() if info.filename and not info.is_dir())
    return sorted(name for name in names if _is_image(name) and not _is_hidden(name))


def split_paths(paths: list[bytes], split: str, held_out: float, name: str) -> SplitPaths:
    """The pictures of one part and their classes, from sorted paths.

    Where there are the folders `train` and one of `held_out val valid validation test`, these are the parts;
    otherwise `held_out` of the pictures are, at least one, by a hash of the path: a picture stays in its part when
    others are added. Classes are the folders at the top of a part, where there are two or more.
    A folder that is alone, as archives like to unpack one, is looked through.
    Raises `DataError` where pictures lie beside the folders of classes.
    """
    if alone := single_root_folder(paths):
        within = split_paths([path[len(alone) :] for path in paths], split, held_out, name)
        return replace(within, paths=PathList([alone + os.fsencode(path) for path in within.paths]))
    folders = folder_names(paths)
    unseen = next((word for word in _HELD_OUT if word in folders), None)
    if b"train" in folders and unseen is not None:
        tops = {"train": b"train/", "held_out": unseen + b"/"}
        parts = {key: paths[prefix_range(paths, top)] for key, top in tops.items()}
        mine, top = parts[split], tops[split]
        classes = sorted(set().union(*(folder_names(parts[key], len(tops[key])) for key in parts)))
        beside = next((p for key in parts for p in parts[key] if p.find(b"/", len(tops[key])) < 0), None)
    else:
        mine, top, classes = _hash_split(paths, split, held_out), b"", sorted(folders)
        beside = next((path for path in paths if b"/" not in path), None)
    if len(classes) < 2:
        return SplitPaths(PathList(mine), None, ())
    if beside is not None:
        found = f"{os.fsdecode(beside)!r} beside the folders of {len(classes)} classes"
        raise DataError(f"{name}: found {found}; move it into one")
    labels = np.empty(len(mine), np.int32)
    for number, folder in enumerate(classes):
        labels[prefix_range(mine, top + folder + b"/")] = number
    return SplitPaths(PathList(mine), labels, tuple(folder.decode("utf-8", "replace") for folder in classes))


def class_folder_levels(paths: list[bytes]) -> list[bytes]:
    """Where class folders stand, each with its slash: at the top, in a folder that is alone, or in both parts."""
    found, top = [b""], b""
    while alone := single_root_folder([path[len(top) :] for path in paths]):
        top += alone
        found.append(top)
    folders = folder_names(paths, len(top), top)
    unseen = next((word for word in _HELD_OUT if word in folders), None)
    is_split = b"train" in folders and unseen is not None
    return [*found[:-1], top + b"train/", top + unseen + b"/"] if is_split and unseen else found


def single_root_folder(paths: list[bytes]) -> bytes:
    """The one folder that all pictures lie in, with its slash; empty where there is no such folder."""
    top, slash, _ = paths[0].partition(b"/")
    return top + slash if slash and len(paths[prefix_range(paths, top + slash)]) == len(paths) else b""


def _walk(
    root: bytes, inner: bytes, above: frozenset[tuple[int, int]], ways: Counter[tuple[int, int]]
) -> Iterator[bytes]:
    folder = os.path.join(root, inner)
    status = os.stat(folder)
    me = (status.st_dev, status.st_ino)
    if me in above:
        return
    ways[me] += 1
    if ways[me] > _MAX_LINK_PATHS:
        found = f"a folder that links lead to by more than {_MAX_LINK_PATHS} ways"
        raise DataError(f"{os.fsdecode(folder)}: found {found}, expected a tree of folders; remove links")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(b".") or (entry.is_symlink() and not os.path.exists(entry)):
                continue  # hidden, or a link that leads nowhere or to itself
            if entry.is_dir():
                yield from _walk(root, inner + entry.name + b"/", above | {me}, ways)
            elif _is_image(entry.name) and entry.is_file():
                yield inner + entry.name


def _is_image(path: bytes) -> bool:
    return path.lower().endswith(_EXTENSIONS)


def _is_hidden(path: bytes) -> bool:
    return any(word.startswith((b".", b"__MACOSX")) for word in path.split(b"/"))


def folder_names(paths: list[bytes], start: int = 0, top: bytes = b"") -> set[bytes]:
    """The folders at the top, which begins at byte `start`. top: of the paths that begin with it."""
    found, row = set(), 0
    paths = paths[prefix_range(paths, top)] if top else paths
    while row < len(paths):
        end = paths[row].find(b"/", start)
        if end < 0:
            row += 1
        else:
            found.add(paths[row][start:end])
            row = prefix_range(paths, paths[row][: end + 1]).stop
    return found


def prefix_range(paths: list[bytes], top: bytes) -> slice:
    """Where the paths that start with `top` lie, which ends with a slash: side by side, as they are sorted."""
    return slice(bisect_left(paths, top), bisect_left(paths, top[:-1] + _AFTER_SLASH))


def _hash_split(paths: list[bytes], split: str, held_out: float) -> list[bytes]:
    digests = b"".join([blake2b(path, digest_size=4).digest() for path in paths])
    hashes = np.frombuffer(digests, "<u4")
    unseen = hashes < held_out * 2**32
    if not unseen.any() or unseen.all():
        unseen = hashes == hashes.min()  # of ten pictures none may be below, of two both
    return [paths[row] for row in np.flatnonzero(unseen == (split == "held_out"))]
