"""Paths of the images in a folder or zip file, in compact form, with split and class of each."""

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

_HELD_OUT = (b"held_out", b"val", b"valid", b"validation", b"test")  # the first that exists is used
_AFTER_SLASH = bytes([ord("/") + 1])
_MAX_LINK_PATHS = 64
_EXTENSIONS = tuple(ending.encode() for ending in EXTENSIONS)


class PathList:
    """Sequence of paths in one bytes object: about 40 bytes each; a `Path` takes hundreds."""

    def __init__(self, paths: list[bytes]) -> None:
        self._bytes = b"".join(paths)
        self._ends = np.cumsum([0, *map(len, paths)])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> str:
        return os.fsdecode(self._bytes[self._ends[row] : self._ends[row + 1]])


@dataclass(frozen=True)
class SplitPaths:
    """Sorted paths of one split. labels: index into class_names per path; None without classes."""

    paths: PathList
    labels: NDArray[np.int32] | None
    class_names: tuple[str, ...]


def find_images(root: Path) -> list[bytes]:
    """Return the sorted relative paths of all images in a folder, by file extension.

    Hidden files are skipped. Links are followed, except to a parent of the link. No image is
    opened. Raises `DataError` if a folder cannot be listed, or is reached through links on more
    than 64 paths: n folders that link to each other have 2ⁿ paths or more.
    """
    try:
        return sorted(_walk(os.fsencode(root), b"", frozenset(), Counter()))
    except OSError as error:
        name = os.fsdecode(error.filename)
        raise DataError(f"{name}: the folder cannot be listed ({error.strerror}); check its permissions") from None


def find_images_in_zip(archive: zipfile.ZipFile) -> list[bytes]:
    """Return the sorted paths of all images in a zip file, by extension, without hidden files."""
    names = (os.fsencode(info.filename) for info in archive.infolist() if info.filename and not info.is_dir())
    return sorted(name for name in names if _is_image(name) and not _is_hidden(name))


def split_paths(paths: list[bytes], split: str, held_out: float, name: str) -> SplitPaths:
    """Return the images of one split and their classes, from sorted paths.

    If the folders `train` and one of `held_out val valid validation test` exist, they are the
    splits. Otherwise the share `held_out` of the images is held out, at least one, by a hash of the
    path: an image stays in its split when others are added. Classes are the folders at the top of a
    split, if it has two or more. A single root folder, as archives often have, is skipped. Raises
    `DataError` if images are next to class folders.
    """
    if root := single_root_folder(paths):
        within = split_paths([path[len(root) :] for path in paths], split, held_out, name)
        return replace(within, paths=PathList([root + os.fsencode(path) for path in within.paths]))
    folders = folder_names(paths)
    held_out_folder = next((word for word in _HELD_OUT if word in folders), None)
    if b"train" in folders and held_out_folder is not None:
        tops = {"train": b"train/", "held_out": held_out_folder + b"/"}
        parts = {key: paths[prefix_range(paths, top)] for key, top in tops.items()}
        mine = parts[split]
        top = tops[split]
        classes = sorted(set().union(*(folder_names(parts[key], len(tops[key])) for key in parts)))
        stray = None
        for key, of_split in parts.items():
            stray = stray or next((path for path in of_split if path.find(b"/", len(tops[key])) < 0), None)
    else:
        mine = _hash_split(paths, split, held_out)
        top = b""
        classes = sorted(folders)
        stray = next((path for path in paths if b"/" not in path), None)
    if len(classes) < 2:
        return SplitPaths(PathList(mine), None, ())
    if stray is not None:
        raise DataError(
            f"{name}: {os.fsdecode(stray)!r} is next to {len(classes)} class folders; move it into one of them"
        )
    labels = np.empty(len(mine), np.int32)
    for number, folder in enumerate(classes):
        labels[prefix_range(mine, top + folder + b"/")] = number
    return SplitPaths(PathList(mine), labels, tuple(folder.decode("utf-8", "replace") for folder in classes))


def class_folder_levels(paths: list[bytes]) -> list[bytes]:
    """Return the folders that may contain class folders, each with a final slash."""
    levels = [b""]
    top = b""
    while root := single_root_folder([path[len(top) :] for path in paths]):
        top += root
        levels.append(top)
    folders = folder_names(paths, len(top), top)
    held_out_folder = next((word for word in _HELD_OUT if word in folders), None)
    if b"train" not in folders or held_out_folder is None:
        return levels
    return [*levels[:-1], top + b"train/", top + held_out_folder + b"/"]


def single_root_folder(paths: list[bytes]) -> bytes:
    """Return the one folder that contains all images, with its slash; empty if none does."""
    top, slash, _ = paths[0].partition(b"/")
    return top + slash if slash and len(paths[prefix_range(paths, top + slash)]) == len(paths) else b""


def _walk(
    root: bytes, inner: bytes, parents: frozenset[tuple[int, int]], visits: Counter[tuple[int, int]]
) -> Iterator[bytes]:
    folder = os.path.join(root, inner)
    status = os.stat(folder)
    inode = (status.st_dev, status.st_ino)
    if inode in parents:
        return
    visits[inode] += 1
    if visits[inode] > _MAX_LINK_PATHS:
        raise DataError(
            f"{os.fsdecode(folder)}: symbolic links lead to this folder on more than "
            f"{_MAX_LINK_PATHS} paths; remove some"
        )
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(b".") or (entry.is_symlink() and not os.path.exists(entry)):
                continue  # hidden, or a broken or circular link
            if entry.is_dir():
                yield from _walk(root, inner + entry.name + b"/", parents | {inode}, visits)
            elif _is_image(entry.name) and entry.is_file():
                yield inner + entry.name


def _is_image(path: bytes) -> bool:
    return path.lower().endswith(_EXTENSIONS)


def _is_hidden(path: bytes) -> bool:
    return any(word.startswith((b".", b"__MACOSX")) for word in path.split(b"/"))


def folder_names(paths: list[bytes], start: int = 0, top: bytes = b"") -> set[bytes]:
    """Return the top folders of the paths with prefix `top`, relative to byte `start`."""
    names = set()
    row = 0
    paths = paths[prefix_range(paths, top)] if top else paths
    while row < len(paths):
        end = paths[row].find(b"/", start)
        if end < 0:
            row += 1
        else:
            names.add(paths[row][start:end])
            row = prefix_range(paths, paths[row][: end + 1]).stop
    return names


def prefix_range(paths: list[bytes], top: bytes) -> slice:
    """Return the slice of the sorted paths that start with `top`, which ends with a slash."""
    return slice(bisect_left(paths, top), bisect_left(paths, top[:-1] + _AFTER_SLASH))


def _hash_split(paths: list[bytes], split: str, held_out: float) -> list[bytes]:
    digests = b"".join([blake2b(path, digest_size=4).digest() for path in paths])
    hashes = np.frombuffer(digests, "<u4")
    is_held_out = hashes < held_out * 2**32
    if not is_held_out.any() or is_held_out.all():
        is_held_out = hashes == hashes.min()  # few images: hold out exactly one
    return [paths[row] for row in np.flatnonzero(is_held_out == (split == "held_out"))]
