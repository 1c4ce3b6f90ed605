"""Files of two folders or names, such as trainA/ and trainB/, or 1_input.png and 1_target.png, and pairs of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from paragan.core.errors import DataError
from paragan.core.printable import join_some
from paragan.datasets._folder_layout import arrange
from paragan.datasets._image_paths import ArrangedPaths, common_folders

_NAMES = tuple(
    tuple(names.split())
    for names in (b"a b", b"input target", b"low high", b"lr hr", b"source target", b"before after", b"blur sharp")
)
_SPLITS = b"train|training|held_out|val|valid|validation|test|testing"
_SIDES = b"|".join(name for pair in _NAMES for name in pair)
_FOLDER = re.compile(rb"(?is)(?P<parents>|.*?/)(?P<split>%s|)[_-]?(?P<side>%s)s?/(?P<rest>.*)" % (_SPLITS, _SIDES))
_FILE = re.compile(rb"(?is)^(.*[^/])[_.-](%s)(\.\w+)|^(.*/|)(%s)[_-]([^/]+)" % (_SIDES, _SIDES))
_FILE_IN_FOLDER = rb"\2\5/\1\3\4\6"  # groups of `_FILE`, of which half are empty: A/1.png for 1_A.png and A_1.png
SIDE_NAMES = (
    "A/ and B/ (also trainA/ and trainB/, input/ and target/, source/ and target/, low/ and high/, lr/ and hr/), "
    "or the files 1_A.png and 1_B.png"
)
_SUFFIX = re.compile(rb"\.[0-9]?[A-Za-z]\w*$")  # not the number in `frame.7`
_LENGTH_BYTES = 8
_MAX_NAMED = 3


@dataclass(frozen=True)
class TwoSides:
    """Files of two sides, those of A and those of B.

    names: of the folders, or of the files (`*_A`, `A_*`), in words. paths: of each side, by the path without the side,
    which is `train/1.png` of `trainA/1.png`, `train/A/1.png` and `A/train/1.png`. num_others: files in neither.
    named_by: whose names are those of sides.
    """

    names: tuple[str, str]
    paths: tuple[dict[bytes, bytes], dict[bytes, bytes]]
    num_others: int
    named_by: Literal["folders", "files"]

    def arrange(self, name: str) -> ArrangedPaths:
        """Return the files in splits, with A and B as classes. name: of the data in messages."""
        files = {}  # path and side; names end with the side, as `train/1.png` may be a file of both
        for side, paths in enumerate(self.paths):
            files.update({rest + b".%d" % side: (path, side) for rest, path in paths.items()})
        arranged = arrange(sorted(files), name, "none")
        others = {"images elsewhere": self.num_others} if self.num_others else {}
        return replace(
            arranged,
            paths=[files[key][0] for key in arranged.paths],
            labels=np.array([files[key][1] for key in arranged.paths], np.int32),
            class_names=self.names,
            ignored={**arranged.ignored, **others},
        )


def find_sides(paths: list[bytes]) -> TwoSides | None:
    """Return the files of two folders or file names of the sides of pairs; None if there are none. paths: sorted."""
    start = len(common_folders(paths)[-1])
    matches = [(path, match) for path in paths if (match := _FOLDER.fullmatch(path, start))]
    has_folders = bool(matches)
    if not has_folders:
        in_folders = ((path, _FILE.sub(_FILE_IN_FOLDER, path)) for path in paths)
        matches = [(path, match) for path, inner in in_folders if (match := _FOLDER.fullmatch(inner))]
    for names in _NAMES:
        sides: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
        described: tuple[set[str], set[str]] = (set(), set())
        of_names = [(path, match) for path, match in matches if match["side"].lower() in names]
        for path, match in of_names:
            side = names.index(match["side"].lower())
            _add(sides[side], _without_side(match), path)
            is_first = path.rpartition(b"/")[2].startswith(match["side"])
            of_files = match["side"] + b"_*" if is_first else b"*_" + match["side"]
            pattern = path[start : match.start("rest")] if has_folders else of_files
            described[side].add(os.fsdecode(pattern))
        if all(sides):
            a, b = (", ".join(sorted(patterns)[:_MAX_NAMED]) for patterns in described)
            return TwoSides((a, b), sides, len(paths) - len(of_names), "folders" if has_folders else "files")
    return None


def _without_side(match: re.Match[bytes]) -> bytes:
    """Return the path that both files of a pair share: train/1.png of trainA/1.png, and of trainA/1_A.png."""
    split = match["split"] + b"/" if match["split"] else b""
    rest = re.sub(rb"(?i)[-_]%s(?=\.\w+$)" % match["side"], b"", match["rest"])
    return match["parents"] + split + rest


def kind_of_pairs(paths: list[bytes]) -> str | None:
    """Return the data set of files that are named as sides, A and B: paired or unpaired; None for classes, a and b."""
    if not (_FOLDER.fullmatch(paths[0]) or _FILE.fullmatch(paths[0])):  # all must match: spares reading a million
        return None
    try:
        sides = find_sides(paths)
        if sides is None or sides.num_others or sides.names[0].endswith("a/"):
            return None
        a, b = (_by_stem(side) for side in sides.paths)
    except DataError:  # two files of one name on a side
        return None
    if 2 * len(a.keys() & b.keys()) > max(len(a), len(b)):
        return "paired"
    return "unpaired" if sides.names[0].endswith("A/") else None


def match_names(sides: TwoSides, where: str, skip: bool) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Return both files of each pair by their common name, and the files without a partner.

    Raises `DataError` for files without a partner unless `skip`, and for a single pair.
    """
    a, b = (_by_stem(paths) for paths in sides.paths)
    pairs = {name: (a[name], b[name]) for name in sorted(a.keys() & b.keys())}
    single = sorted({**a, **b}[name] for name in a.keys() ^ b.keys())
    if len(pairs) == 1:
        raise DataError(f"data.path={where}: only one pair of equal names in {' and '.join(sides.names)}; add pairs")
    if single and pairs and not skip:
        raise DataError(
            f"data.path={where}: {len(pairs):,} pairs of equal names in {sides.names[0]} and {sides.names[1]}, but "
            f"files without a partner: {describe_single(single)}; add it, or pass data.damaged=skip to leave them out"
        )
    return pairs, single


def describe_single(files: list[str]) -> str:
    """Return how many files have no partner, and the first names."""
    return f"{len(files):,} ({join_some([repr(name) for name in files], _MAX_NAMED)})"


def _by_stem(paths: Mapping[bytes, bytes]) -> dict[str, str]:
    stems: dict[bytes, bytes] = {}
    for rest, path in paths.items():
        _add(stems, _SUFFIX.sub(b"", rest), path)
    return {os.fsdecode(stem): os.fsdecode(path) for stem, path in stems.items()}


def _add(paths: dict[bytes, bytes], name: bytes, path: bytes) -> None:
    if (other := paths.setdefault(name, path)) != path:
        both = f"{os.fsdecode(other)!r} and {os.fsdecode(path)!r}"
        raise DataError(f"{both} have the same name on one side of a pair; remove or rename one")


def join_pair(a: bytes, b: bytes) -> bytes:
    """Return both files of a pair as one bytes object."""
    return len(a).to_bytes(_LENGTH_BYTES) + a + b


def split_pair(data: bytes) -> tuple[bytes, bytes]:
    """Return both files of a pair."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES])
    return data[_LENGTH_BYTES:end], data[end:]
