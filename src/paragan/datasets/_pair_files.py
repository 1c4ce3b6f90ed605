"""Files in two folders, such as A/ and B/, trainA/ and trainB/, or input/ and target/, and pairs of them by name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paragan.core.errors import DataError
from paragan.core.printable import join_some
from paragan.datasets._folder_layout import arrange
from paragan.datasets._image_paths import ArrangedPaths, common_folders
from paragan.datasets.base.file_readers import FileReader
from paragan.datasets.base.open_images import FileImages, list_images

_NAMES = tuple(
    tuple(names.split())
    for names in (b"a b", b"input target", b"low high", b"lr hr", b"source target", b"before after", b"blur sharp")
)
_SPLITS = b"train|training|held_out|val|valid|validation|test|testing"
_FOLDER = re.compile(
    rb"(?is)(|.*?/)(%s|)[_-]?(%s)/(.*)" % (_SPLITS, b"|".join(name for pair in _NAMES for name in pair))
)
SIDE_NAMES = (
    "A/ and B/ (also trainA/ and trainB/, input/ and target/, source/ and target/, low/ and high/, lr/ and hr/)"
)
_SUFFIX = re.compile(rb"\.[0-9]?[A-Za-z]\w*$")  # not the number in `frame.7`
_LENGTH_BYTES = 8
_MAX_NAMED = 3


@dataclass(frozen=True)
class TwoSides:
    """Files of two folders, those of A and those of B.

    names: of the folders, in words. paths: of each side, by the path without the side, which is
    `train/1.png` of `trainA/1.png`, `train/A/1.png` and `A/train/1.png`. num_others: files in neither.
    """

    names: tuple[str, str]
    paths: tuple[dict[bytes, bytes], dict[bytes, bytes]]
    num_others: int

    def arrange(self, name: str) -> ArrangedPaths:
        """Return the files in splits, with A and B as classes. name: of the data in messages."""
        files = {rest + b".%d" % side: (path, side) for side in (0, 1) for rest, path in self.paths[side].items()}
        arranged = arrange(sorted(files), name, "none")
        chosen = [files[key] for key in arranged.paths]
        return replace(
            arranged,
            paths=[path for path, _ in chosen],
            labels=np.array([side for _, side in chosen], np.int32),
            class_names=self.names,
            ignored={**arranged.ignored, **({"images elsewhere": self.num_others} if self.num_others else {})},
        )


def find_sides(paths: list[bytes]) -> TwoSides | None:
    """Return the files of two folders named as the sides of pairs; None if there are none. paths: sorted."""
    start = len(common_folders(paths)[-1])
    matches = [(path, match) for path in paths if (match := _FOLDER.fullmatch(path, start))]
    for names in _NAMES:
        sides: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
        folders: tuple[set[str], set[str]] = (set(), set())
        of_names = [(path, match) for path, match in matches if match[3].lower() in names]
        for path, match in of_names:
            side = names.index(match[3].lower())
            _add(sides[side], match[1] + (match[2] and match[2] + b"/") + match[4], path)
            folders[side].add(os.fsdecode(path[start : match.start(4)]))
        if all(sides):
            a, b = (", ".join(sorted(side)[:_MAX_NAMED]) for side in folders)
            return TwoSides((a, b), sides, len(paths) - len(of_names))
    return None


def guess_pairs(path: str) -> str | None:
    """Return the data set for two folders that are named as sides: paired or unpaired; None if they are classes."""
    try:
        _, paths = list_images(path)
    except DataError:  # which reading the images reports, if it is one
        return None
    if (sides := find_sides(paths)) is None:
        return None
    pairs, _ = match_names(sides, path, skip=True)
    is_paired = 2 * len(pairs) > max(map(len, sides.paths))
    if sides.num_others or not (is_paired or "A" in sides.names[0]):  # classes that have such names
        return None
    return "paired" if is_paired else "unpaired"


def match_names(sides: TwoSides, where: str, skip: bool) -> tuple[dict[str, tuple[str, str]], tuple[str, ...]]:
    """Return both files of each pair by their common name; files without a partner raise `DataError`, or are said."""
    a, b = (_by_stem(paths) for paths in sides.paths)
    pairs = {name: (a[name], b[name]) for name in sorted(a.keys() & b.keys())}
    single = sorted({**a, **b}[name] for name in a.keys() ^ b.keys())
    if len(pairs) == 1:
        raise DataError(f"data.path={where}: only one pair of equal names in {' and '.join(sides.names)}; add pairs")
    if not single or not pairs:
        return pairs, ()
    named = join_some([repr(name) for name in single], _MAX_NAMED)
    if skip:
        return pairs, (f"files without a partner are left out (data.damaged=skip): {len(single):,} ({named})",)
    raise DataError(
        f"data.path={where}: {len(pairs):,} pairs of equal names in {sides.names[0]} and {sides.names[1]}, but files "
        f"without a partner: {len(single):,} ({named}); add it, or pass data.damaged=skip to leave them out"
    )


def _by_stem(paths: Mapping[bytes, bytes]) -> dict[str, str]:
    stems: dict[bytes, bytes] = {}
    for rest, path in paths.items():
        _add(stems, _SUFFIX.sub(b"", rest), path)
    return {os.fsdecode(stem): os.fsdecode(path) for stem, path in stems.items()}


def _add(paths: dict[bytes, bytes], name: bytes, path: bytes) -> None:
    if (other := paths.setdefault(name, path)) != path:
        both = f"{os.fsdecode(other)!r} and {os.fsdecode(path)!r}"
        raise DataError(f"{both} have the same name on one side of a pair; remove or rename one")


class PairedFiles(FileImages):
    """Pairs of files under their common names. Both files are one bytes object, see `split_pair`."""

    noun = "pairs"

    def __init__(
        self, files: FileReader, pairs: Mapping[str, tuple[str, str]], name: str, notices: tuple[str, ...]
    ) -> None:
        super().__init__(files, arrange(sorted(map(os.fsencode, pairs)), name, "none"), notices)
        self._pairs = pairs

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Return both files of each pair."""
        pairs = [[self._files.read(path) for path in self._pairs[self._paths[row]]] for row in rows]
        return [len(a).to_bytes(_LENGTH_BYTES) + a + b for a, b in pairs]

    def where(self, row: int) -> str:
        """Return the names of both files."""
        return " + ".join(map(self._files.where, self._pairs[self._paths[row]]))

    def stamp(self, row: int) -> str:
        """Return size and modification time of both files, or their checksums."""
        return " ".join(map(self._files.stamp, self._pairs[self._paths[row]]))


def split_pair(data: bytes) -> tuple[bytes, bytes]:
    """Return both files of a pair."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES])
    return data[_LENGTH_BYTES:end], data[end:]
