"""What folders of images are: the two splits, classes, or neither."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.core.printable import join_some
from paragan.datasets._image_paths import ArrangedPaths, common_folders, folder_names, rows_in

Choice = Literal["folders", "none"] | None

_SPLIT = re.compile(
    rb"(?:[a-z]+[_-])?(?:(train|training)|(held[_-]?out)|(val|valid|validation)|(test|testing))"
    rb"(?:[_-]?(?:set|split|data|images|imgs))?\d*",
    re.IGNORECASE,
)
SPLITS = ("train", "held_out", "val", "test")  # of the groups above; the first after `train` is held out
_IMAGES = frozenset(b"image img photo picture rgb jpegimage original".split())
_MASKS = frozenset(
    b"mask label annotation segmentation segmentationclas segmentationobject groundtruth gt depth normal edge".split()
)  # without the last s
_PAIRS = (b"A B", b"lr hr", b"low high", b"input target", b"source target", b"before after", b"blur sharp")
_KIND_OF_PAIR = re.compile(rb"(?:train|val|test)[_-]?[AB]", re.IGNORECASE)
_MASK_OF = re.compile(rb"(.+)[_-]masks?(?:[_-]\d+)?\.[^./]+", re.IGNORECASE | re.DOTALL)
_NUM_COMPARED = 1000
_BOTH_WAYS = "data.classes=folders makes them classes, data.classes=none trains without classes"


@dataclass(frozen=True)
class _Part:
    """A folder whose images are of one split, 0 or 1, and perhaps of one class."""

    top: bytes
    split: int = 0
    folder: bytes | None = None


def split_of(folder: bytes) -> str | None:
    """Return the split that a folder or file is named after (Train, validation, test2017); None for other names."""
    match = _SPLIT.fullmatch(folder)
    return None if match is None else SPLITS[(match.lastindex or 1) - 1]


def arrange(paths: list[bytes], name: str, choice: Choice = None, has_labels: bool = False) -> ArrangedPaths:
    """Return the images of both splits with their classes, from sorted paths.

    Folders named after training and another split are the splits, also within each class folder; images
    elsewhere, as of a test split next to validation, are not read. Without them, the split follows from a
    hash of the path: an image stays in its split when others are added. Classes are the folders at the top
    of a split, if there are two or more that look like classes. A single folder is skipped.

    choice: whether folders are classes; None: by their names. has_labels: labels come from files. Raises
    `DataError` if images are next to class folders, and for folders of pairs, or of splits without training.
    """
    *parents, root = common_folders(paths)
    parts = _find_splits(paths, root) or _find_splits_of_classes(paths, root)
    unread: list[bytes] = []
    if not parts:
        parts = [_Part(root)]
        unread = [] if choice == "folders" or has_labels else _find_untrained(paths, root, name)
    parts = _descend(paths, parts, unread, choice)
    notices: tuple[str, ...] = ()
    levels = (*parents, *(part.top for part in parts))
    if choice == "none" or has_labels:
        parts = [replace(part, folder=None) for part in parts]
    elif parts[0].folder is None:
        parts, notices = _find_classes(paths, parts, unread, name, choice)
    classes = sorted({part.folder for part in parts if part.folder is not None})
    number_of = {folder: number for number, folder in enumerate(classes)}
    splits = np.full(len(paths), -1, np.int8)  # -1: not read
    labels = np.zeros(len(paths), np.int32)
    for part in parts:
        splits[rows_in(paths, part.top)] = part.split
        labels[rows_in(paths, part.top)] = 0 if part.folder is None else number_of[part.folder]
    for top in unread:
        splits[rows_in(paths, top)] = -1
    masks = _masks_of_images(paths) if choice is None else []
    splits[masks] = -2
    rows = np.concatenate([np.flatnonzero(splits == split) for split in (0, 1)])
    return ArrangedPaths(
        paths=paths if (np.diff(rows, prepend=-1) == 1).all() and len(rows) == len(paths) else [paths[r] for r in rows],
        labels=labels[rows] if classes else None,
        class_names=tuple(folder.decode("utf-8", "replace") for folder in classes),
        num_train=int((splits == 0).sum()) if any(part.split for part in parts) else None,
        levels=levels,
        ignored=_count_unread(paths, splits, root) | ({"masks": len(masks)} if masks else {}),
        notices=notices,
    )


def _find_splits(paths: list[bytes], root: bytes, folder: bytes | None = None) -> list[_Part]:
    """Return the folders of both splits in `root`; none without one for training and another."""
    tops = defaultdict(list)
    for name in sorted(folder_names(paths, root)):
        tops[split_of(name)].append(root + name + b"/")
    held_out = next((tops[split] for split in SPLITS[1:] if split in tops), [])
    is_tree = any(len(folder_names(paths, top)) > 1 for top in tops["train"])  # more than a class of this name
    if not tops["train"] or not (held_out or is_tree):
        return []
    parts = [(tops["train"], 0), (held_out, 1)]
    return [_Part(top, split, folder) for group, split in parts for top in group]


def _find_splits_of_classes(paths: list[bytes], root: bytes) -> list[_Part]:
    """Return the folders of both splits in every class folder; none if one has no training split."""
    parts: list[_Part] = []
    folders = sorted(folder_names(paths, root))
    for folder in folders if len(folders) > 1 else []:
        of_class = _find_splits(paths, root + folder + b"/", folder)
        if not of_class:
            return []
        parts += of_class
    return parts


def _find_untrained(paths: list[bytes], root: bytes, name: str) -> list[bytes]:
    """Return the folders that are named after held-out splits, next to others. Raises `DataError` without others."""
    folders = sorted(folder for folder in folder_names(paths, root) if split_of(folder) not in (None, "train"))
    tops = [root + folder + b"/" for folder in folders]
    if tops and sum(_count(paths, top) for top in tops) == len(paths):
        raise DataError(
            f"{name}: folders {_listed(folders)} are named after splits, but there is none for training; rename one to "
            f"train, or choose: {_BOTH_WAYS}"
        )
    return tops


def _descend(paths: list[bytes], parts: list[_Part], unread: list[bytes], choice: Choice) -> list[_Part]:
    """Skip single folders, and enter those of images next to masks, unless `choice` says what folders are."""
    while True:
        names = _names_in(paths, parts, unread)
        used = {name for name in names if _role(name) in _IMAGES} if choice is None else set()
        masks = {name for name in names if _role(name) in _MASKS}
        if not (used and masks and used | masks == names):
            used = names
            is_nested = any(part.split for part in parts) and all(map(split_of, names))  # train/train/, test/test/
            is_single = len(names) == 1 or is_nested
            if not is_single or any(_stray(paths, part.top) for part in parts):
                return parts
        parts = [replace(part, top=part.top + name + b"/") for part in parts for name in sorted(used)]
        parts = [part for part in parts if _count(paths, part.top)]


def _find_classes(
    paths: list[bytes], parts: list[_Part], unread: list[bytes], name: str, choice: Choice
) -> tuple[list[_Part], tuple[str, ...]]:
    """Return the class folders in `parts`, and a warning where they may be none."""
    names = sorted(_names_in(paths, parts, unread))
    if len(names) < 2:
        return parts, ()
    parts = [part for part in parts if not part.split or folder_names(paths, part.top)]  # not a test split in no order
    is_numbered = all(name.isdigit() and len(name) == len(names[0]) > 2 for name in names)
    if choice is None and is_numbered:
        return parts, (f"{name}: folders {_listed(names)} are read as numbered parts of one set; {_BOTH_WAYS}",)
    stray = next((path for part in parts if (path := _stray(paths, part.top))), None)
    if stray is not None:
        raise DataError(
            f"{name}: {os.fsdecode(stray)!r} is next to {len(names)} class folders; move it into one of them, or pass "
            "data.classes=none"
        )
    has_equal = choice is None and _have_equal_files(paths, [parts[0].top + name + b"/" for name in names])
    if choice is None and _are_pairs(names, has_equal):
        raise DataError(
            f"{name}: folders {_listed(names)} look like images and their counterparts; train on them with "
            f"data.name=paired or data.name=unpaired, or choose: {_BOTH_WAYS}"
        )
    notice = f"{name}: folders {_listed(names)} hold files of equal names and are read as classes; {_BOTH_WAYS}"
    classes = [_Part(part.top + name + b"/", part.split, name) for part in parts for name in names]
    return [part for part in classes if _count(paths, part.top)], (notice,) * has_equal


def _are_pairs(names: list[bytes], have_equal_files: bool) -> bool:
    if all(_KIND_OF_PAIR.fullmatch(name) for name in names):
        return True
    pair = set(names) if names == [b"A", b"B"] else {name.lower() for name in names}
    return have_equal_files and any(pair == set(names.split()) for names in _PAIRS)


def _have_equal_files(paths: list[bytes], tops: list[bytes]) -> bool:
    """Return whether all folders hold two files or more, of the same names but for the suffix."""
    rows = [rows_in(paths, top) for top in tops]
    count = rows[0].stop - rows[0].start
    if count < 2 or any(part.stop - part.start != count for part in rows):
        return False
    stems = [
        [
            os.path.splitext(path[len(top) :])[0]
            for path in paths[part.start : min(part.start + _NUM_COMPARED, part.stop)]
        ]
        for top, part in zip(tops, rows, strict=True)
    ]
    return all(other == stems[0] for other in stems)


def _masks_of_images(paths: list[bytes]) -> list[int]:
    """Return the rows of files such as `1_mask.png` next to `1.jpg`."""
    named = [
        (row, match[1]) for row, path in enumerate(paths) if b"mask" in path and (match := _MASK_OF.fullmatch(path))
    ]
    stems = {os.path.splitext(path)[0] for path in paths} if named else set()
    return [row for row, stem in named if stem in stems]


def _names_in(paths: list[bytes], parts: list[_Part], unread: list[bytes]) -> set[bytes]:
    folders = ((part.top, name) for part in parts for name in folder_names(paths, part.top))
    return {name for top, name in folders if top + name + b"/" not in unread}


def _count(paths: list[bytes], top: bytes) -> int:
    rows = rows_in(paths, top)
    return rows.stop - rows.start


def _stray(paths: list[bytes], top: bytes) -> bytes | None:
    """Return an image that is in `top`, not in one of its folders; None without."""
    return next((path for path in paths[rows_in(paths, top)] if path.find(b"/", len(top)) < 0), None)


def _role(folder: bytes) -> bytes:
    return folder.lower().replace(b"_", b"").replace(b"-", b"").removesuffix(b"s")


def _listed(folders: list[bytes]) -> str:
    return join_some([repr(os.fsdecode(folder)) for folder in folders])


def _count_unread(paths: list[bytes], splits: NDArray[np.int8], root: bytes) -> dict[str, int]:
    """Return the number of images that are not read by the folder they are in, up to two levels below the root."""
    counts: Counter[bytes] = Counter()
    for row in np.flatnonzero(splits == -1).tolist():
        names = paths[row][len(root) :].split(b"/")
        is_whole = (splits[rows_in(paths, root + names[0] + b"/")] < 0).all()
        counts[b"/".join(names[: 1 if is_whole else 2][: len(names) - 1])] += 1
    return {f"images in {os.fsdecode(folder)}/": count for folder, count in counts.items()}
