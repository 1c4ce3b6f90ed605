"""Paths of the images in a folder or archive, with split and class of each."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.datasets._split_names import HELD_OUT, TRAIN

_AFTER_SLASH = bytes([ord("/") + 1])  # all paths in `a/` come before `a0`
_NUM_COMPARED = 1000  # files of each folder
_MAX_LINK_PATHS = 64
_HIDDEN = (b".", b"__MACOSX", b"@eaDir", b"#recycle", b"$RECYCLE.BIN")  # also of systems and network storage
LABEL_SUFFIXES = (b".cls", b".json", b".jsonl", b".csv")


@dataclass(frozen=True, kw_only=True)
class ArrangedPaths:
    """Paths of images of both splits, in the order of rows.

    labels: int32, index into class_names per path; None without classes. num_train: number of
    training images, which come first; None: the split follows from `split_hashes`. levels: folders that
    may contain class folders. ignored: number of images that are not read, by folder. notices: warnings.
    """

    paths: list[bytes]
    labels: NDArray[np.int32] | None
    class_names: tuple[str, ...]
    num_train: int | None
    levels: tuple[bytes, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def split_hashes(self) -> NDArray[np.uint32]:
        """A hash of each path; 0 if they are not needed."""
        return hash_names(self.paths) if self.num_train is None else np.zeros(len(self.paths), np.uint32)

    def in_order(self, paths: list[bytes]) -> ArrangedPaths:
        """Select those of `paths` that are here, in their order within each split."""
        row_of = {path: row for row, path in enumerate(self.paths)}
        return self._select([row_of[path] for path in paths if path in row_of])

    def without(self, paths: Container[bytes]) -> ArrangedPaths:
        return self._select([row for row, path in enumerate(self.paths) if path not in paths])

    def in_splits(self, splits: NDArray[np.int8]) -> ArrangedPaths:
        """Return the paths of `TRAIN` and of `HELD_OUT`; if none is held out, the split follows from hashes."""
        rows = [np.flatnonzero(splits == split) for split in (TRAIN, HELD_OUT)]
        arranged = replace(self, num_train=None)._select(np.concatenate(rows).tolist())
        return replace(arranged, num_train=len(rows[0]) if len(rows[1]) else None)

    def _select(self, rows: list[int]) -> ArrangedPaths:
        num_train = self.num_train
        if num_train is not None:
            rows = [row for row in rows if row < num_train] + [row for row in rows if row >= num_train]
            num_train = sum(row < num_train for row in rows)
        labels = None if self.labels is None else self.labels[rows]
        return replace(self, paths=[self.paths[row] for row in rows], labels=labels, num_train=num_train)


def hash_names(names: Iterable[bytes]) -> NDArray[np.uint32]:
    """Return a hash of each name, from which the split follows."""
    return np.frombuffer(b"".join([blake2b(name, digest_size=4).digest() for name in names]), "<u4")


def find_files(root: Path, broken_links: list[bytes] | None = None) -> list[bytes]:
    """Return the relative paths of all files in a folder, unsorted.

    Hidden files are skipped. Links are followed, except to a parent of the link. No file is opened. broken_links:
    receives the paths of links that lead to no file, and of pipes and devices. Raises `DataError` if a folder cannot be
    listed, or is reached through links on more than 64 paths: n folders that link to each other have 2ⁿ paths or more.
    """
    try:
        return list(_walk(os.fsencode(root), [] if broken_links is None else broken_links))
    except OSError as error:
        name = os.fsdecode(error.filename)
        raise DataError(f"{name}: the folder cannot be listed ({error.strerror}); check its permissions") from None


def common_folders(paths: list[bytes]) -> list[bytes]:
    """Return the folders that contain all of the sorted paths, from the top (empty) down, with final slashes."""
    folders = [paths[0][: slash.end()] for slash in re.finditer(b"/", paths[0])]
    return [b"", *(folder for folder in folders if paths[-1].startswith(folder))]


def folder_names(paths: list[bytes], top: bytes = b"") -> set[bytes]:
    """Return the names of the folders in `top`, which is empty or ends with a slash. paths: sorted."""
    names = set()
    rows = rows_in(paths, top)
    row = rows.start
    while row < rows.stop:
        end = paths[row].find(b"/", len(top))
        if end < 0:
            row += 1
        else:
            names.add(paths[row][len(top) : end])
            row = rows_in(paths, paths[row][: end + 1]).stop
    return names


def rows_in(paths: list[bytes], top: bytes) -> slice:
    """Return the slice of the sorted paths in `top`, which is empty or ends with a slash."""
    return slice(bisect_left(paths, top), bisect_left(paths, top[:-1] + _AFTER_SLASH) if top else len(paths))


def has_paths(paths: list[bytes], top: bytes) -> bool:
    """Return whether any of the sorted paths is in `top`."""
    rows = rows_in(paths, top)
    return rows.stop > rows.start


def path_next_to_folders(paths: list[bytes], top: bytes) -> bytes | None:
    """Return one of the sorted paths that is in `top` and not in one of its folders; None without."""
    return next((path for path in paths[rows_in(paths, top)] if path.find(b"/", len(top)) < 0), None)


def have_equal_files(paths: list[bytes], tops: list[bytes], with_numbered: bool) -> bool:
    """Return whether most file names are in all folders, but for the suffix, as of pairs, which are no classes.

    At least two: a single one, such as 1.png in each class, is chance. Compared are the first files of each folder.
    with_numbered: also names that differ in digits alone, such as img_1.png, which classes often have.
    """
    firsts = [[path[len(top) :] for path in paths[rows_in(paths, top)][:_NUM_COMPARED]] for top in tops]
    stems = [{os.path.splitext(name)[0] for name in names} for names in firsts]
    shared = set.intersection(*stems)
    is_numbered = len({re.sub(rb"\d+", b"", stem) for stem in shared}) == 1
    return 2 * len(shared) > max(2, *map(len, stems)) and (with_numbered or not is_numbered)


def is_hidden(path: bytes) -> bool:
    """Return whether a file or one of its parent folders is hidden."""
    return any(word.startswith(_HIDDEN) for word in path.removeprefix(b"./").split(b"/"))


def _walk(root: bytes, broken_links: list[bytes]) -> Iterator[bytes]:
    visits: Counter[tuple[int, int]] = Counter()
    folders: list[tuple[bytes, frozenset[tuple[int, int]]]] = [(b"", frozenset())]  # with its parents
    while folders:
        inner, parents = folders.pop()
        folder = os.path.join(root, inner)
        status = os.stat(folder)
        inode = (status.st_dev, status.st_ino)
        if inode in parents:
            continue
        visits[inode] += 1
        if visits[inode] > _MAX_LINK_PATHS:
            raise DataError(
                f"{os.fsdecode(folder)}: symbolic links lead to this folder on more than "
                f"{_MAX_LINK_PATHS} paths; remove some"
            )
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                is_broken = entry.is_symlink() and not os.path.exists(entry)  # or circular
                if not is_broken and entry.is_dir():
                    folders.append((inner + entry.name + b"/", parents | {inode}))
                elif not is_broken and entry.is_file():
                    yield inner + entry.name
                else:
                    broken_links.append(inner + entry.name)
