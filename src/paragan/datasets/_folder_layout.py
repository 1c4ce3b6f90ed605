"""What folders of images are: the two splits, classes, or neither."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.core.printable import join_some
from paragan.datasets._image_paths import ArrangedPaths, common_folders, folder_names, rows_in
from paragan.datasets._split_names import SPLITS, group_splits, masks_of_images, parse_split, split_by_names, words_of

Choice = Literal["folders", "none"] | None

_IMAGES = frozenset(b"image img photo picture rgb original data".split())
_OF_IMAGES = frozenset(b"jpeg left right bit".split())
_TARGETS = frozenset(b"mask anno annotation segmentation truth groundtruth gt".split())  # never classes
_MASKS = _TARGETS | frozenset(b"label depth normal edge".split())
_OF_MASKS = frozenset(b"ground clas object fine coarse part".split())
# parts of one set, never classes
_PART = re.compile(rb"(?i)(k?[_-]?fold|cv|split|part|batch|chunk|shard|subset|run|trial|session|seed)[ _-]?\d+")
_NUM_COMPARED = 1000
_MAX_SIDES = 3  # of equal file names, such as images, masks and edges
_UNTRAINED = frozenset((split, ()) for split in SPLITS[1:])
_BOTH_WAYS = "data.classes=folders makes them classes, data.classes=none trains without classes"


@dataclass(frozen=True)
class _Part:
    """A folder whose images are of one split, 0, 1 or -1 (not read), and perhaps of one class."""

    top: bytes
    split: int = 0
    folder: bytes | None = None


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
    tops = _descend(paths, [_Part(root)], [], choice)
    meaning = "none" if has_labels else choice
    unread: list[bytes] = []
    parts = _find_splits(paths, tops, name, meaning) or _find_splits_of_classes(paths, tops, name, meaning)
    if not parts:
        parts = tops
        unread = [] if choice == "folders" or has_labels else _find_untrained(paths, tops, name, choice)
    if choice == "none":  # without classes, a test split is one also without a folder of training
        parts, unread = [*parts, *(_Part(top, 1) for top in unread)], []
    parts = _descend(paths, parts, unread, choice)
    notices: tuple[str, ...] = ()
    levels = (*parents, *(part.top for part in parts))
    if choice == "none" or has_labels:
        parts = [replace(part, folder=None) for part in parts]
    elif parts[0].folder is None:
        parts, notices = _find_classes(paths, parts, unread, name, choice)
    if meaning is None:
        notices += _check_classes(paths, parts, name)
    classes = sorted({part.folder for part in parts if part.folder is not None})
    splits = np.full(len(paths), -1, np.int8)  # -1: not read
    labels = np.zeros(len(paths), np.int32)
    for part in (*parts, *(_Part(top, -1) for top in unread)):
        splits[rows_in(paths, part.top)] = part.split
        labels[rows_in(paths, part.top)] = 0 if part.folder is None else classes.index(part.folder)
    masks = masks_of_images(paths) if choice is None else []
    splits[masks] = -2
    if not (splits == 1).any():
        split_by_names(paths, splits)
    rows = np.concatenate([np.flatnonzero(splits == split) for split in (0, 1)])
    return ArrangedPaths(
        paths=paths if (np.diff(rows, prepend=-1) == 1).all() and len(rows) == len(paths) else [paths[r] for r in rows],
        labels=labels[rows] if classes else None,
        class_names=tuple(folder.decode("utf-8", "backslashreplace") for folder in classes),
        num_train=int((splits == 0).sum()) if (splits == 1).any() else None,
        levels=levels,
        ignored=_count_unread(paths, splits, root) | ({"masks": len(masks)} if masks else {}),
        notices=notices,
    )


def _find_splits(paths: list[bytes], tops: list[_Part], name: str, choice: Choice) -> list[_Part]:
    """Return the folders of both splits in `tops`; none without one for training and another.

    Raises `DataError` if they are splits of several kinds of images and nothing decides between these.
    """
    folders = sorted(_names_in(paths, tops, []))
    kinds = {kind: splits for kind, splits in group_splits(folders).items() if not _is_made_of(kind, _MASKS, _OF_MASKS)}
    if not any(held_out for _, held_out in kinds.values()):
        return []
    if len(kinds) > 1 and choice is None:
        raise DataError(
            f"{name}: folders {_listed(folders)} are splits of several kinds of images; pass the folder of one "
            f"kind, train on pairs with data.name=paired or data.name=unpaired, or choose: {_BOTH_WAYS}"
        )
    if len(kinds) > 1 and choice == "folders":
        return []
    named = [(folder, split) for splits in kinds.values() for split in (0, 1) for folder in splits[split]]
    parts = [_Part(part.top + folder + b"/", split, part.folder) for folder, split in named for part in tops]
    return [part for part in parts if _count(paths, part.top)]


def _find_splits_of_classes(paths: list[bytes], tops: list[_Part], name: str, choice: Choice) -> list[_Part]:
    """Return the folders of both splits in the class folders; none if no class folder has them.

    Raises `DataError` for a class folder without them, unless a setting says that it is for training.
    """
    folders = sorted({folder for part in tops for folder in folder_names(paths, part.top)})
    if len(folders) < 2:
        return []
    classes = [_Part(part.top + folder + b"/", 0, folder) for part in tops for folder in folders]
    parts = _find_splits(paths, classes, name, choice)
    with_splits = {part.folder for part in parts}
    whole = [part for part in classes if part.folder not in with_splits]
    if parts and choice is None and all(map(_PART.fullmatch, folders)):
        named = _listed(folders)
        raise DataError(f"{name}: folders {named} are parts of one set, with splits in each; {_one_or(named)}")
    if parts and whole and choice is None:
        raise DataError(
            f"{name}: other classes have folders of splits, {os.fsdecode(whole[0].top)!r} has none; move its images "
            f"into such folders, or choose: {_BOTH_WAYS}"
        )
    return [*parts, *whole] if parts else []


def _find_untrained(paths: list[bytes], parts: list[_Part], name: str, choice: Choice) -> list[bytes]:
    """Return the folders that are named after held-out splits, next to others. Raises `DataError` without others."""
    folders = sorted(_names_in(paths, parts, []))
    parsed = [parse_split(folder) for folder in folders]
    is_untrained = all(split not in (None, "train") for split, _ in parsed) and len({kind for _, kind in parsed}) == 1
    if is_untrained and not any(_stray(paths, part.top) for part in parts):
        if choice is not None:
            return []
        raise DataError(
            f"{name}: {_listed(folders)} are named after splits, but there is none for training; rename one to train, "
            f"or choose: {_BOTH_WAYS}"
        )
    untrained = [folder for folder, split in zip(folders, parsed, strict=True) if split in _UNTRAINED]
    return [part.top + folder + b"/" for part in parts for folder in untrained]


def _descend(paths: list[bytes], parts: list[_Part], unread: list[bytes], choice: Choice) -> list[_Part]:
    """Skip single folders, and enter those of images next to masks, unless `choice` says what folders are."""
    while True:
        names = _names_in(paths, parts, unread)
        words = {folder: set(words_of(folder)) for folder in names}
        common = set.intersection(*words.values()) if len(names) > 1 else set()
        used = {folder for folder in names if _is_made_of(words[folder] - common, _IMAGES, _OF_IMAGES)}
        masks = {folder for folder in names if _is_made_of(words[folder] - common, _MASKS, _OF_MASKS)}
        if choice is not None or not (used and masks and used | masks == names):
            used = names
            is_nested = any(part.split for part in parts) and all(parse_split(folder)[0] for folder in names)
            is_single = len(names) == 1 or is_nested  # train/train/, test/test/
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
    is_cut = all(map(_PART.fullmatch, names)) and all(
        len(folder_names(paths, part.top + name + b"/")) < 2 for part in parts for name in names
    )
    if choice is None and (is_numbered or is_cut):
        return parts, (f"{name}: folders {_listed(names)} are read as numbered parts of one set; {_BOTH_WAYS}",)
    stray = next((path for part in parts if (path := _stray(paths, part.top))), None)
    if stray is not None:
        raise DataError(
            f"{name}: {os.fsdecode(stray)!r} is next to {len(names)} class folders; move it into one of them, or pass "
            "data.classes=none"
        )
    has_equal = choice is None and _have_equal_files(paths, [parts[0].top + name + b"/" for name in names])
    if choice is None and _are_pairs(names):
        raise pairs_error(name, names)
    notice = (
        f"{name}: folders {_listed(names)} hold files of equal names and are read as classes; {_BOTH_WAYS}; of "
        "two folders named A and B, data.name=paired trains on pairs"
    )
    classes = [_Part(part.top + name + b"/", part.split, name) for part in parts for name in names]
    return [part for part in classes if _count(paths, part.top)], (notice,) * (has_equal and len(names) <= _MAX_SIDES)


def _check_classes(paths: list[bytes], parts: list[_Part], name: str) -> tuple[str, ...]:
    """Return a line about folders in those of classes.

    Raises `DataError` if the names of classes, or of the folders in them, say that these may be something else.
    """
    tops = {part.folder: part.top for part in parts if part.folder and not part.split}
    names = {folder: folder_names(paths, top) for folder, top in tops.items()}
    inner = {folder: frozenset(name for name in of if not _PART.fullmatch(name)) for folder, of in names.items()}
    splits = [parse_split(folder) for folder in inner]
    is_plain = {("train", ()) in splits, not _UNTRAINED.isdisjoint(splits)}
    words = {split == "train" for split, _ in splits if split is not None}
    has_equal = len(inner) > 1 and len(set(inner.values())) == 1
    doubtful = [
        folder
        for folder, folders in inner.items()
        if len(folders) > 1 and (has_equal or folders <= inner.keys() or parse_split(folder) == ("train", ()))
    ]
    if doubtful or (len(words) == 2 and any(is_plain)):
        within = f", and {_listed(sorted(inner[doubtful[0]]))} in them the classes" if doubtful else ""
        named = _listed(sorted(inner))
        raise DataError(f"{name}: folders {named} may be splits{within}; name them train and val, {_one_or(named)}")
    merged = [folder for folder, folders in inner.items() if len(folders) > 1]
    line = f"{name}: {_listed(merged)} are one class each; move the folders in them up to make these the classes"
    return (line,) if merged else ()


def pairs_error(name: str, folders: list[bytes]) -> DataError:
    """Return the error for folders or files that look like the sides of pairs."""
    return DataError(
        f"{name}: {_listed(folders)} look like images and their counterparts; train on them with "
        f"data.name=paired or data.name=unpaired, or choose: {_BOTH_WAYS}"
    )


def _one_or(named: str) -> str:
    ways = f"data.classes=folders makes {named} classes, data.classes=none trains without classes"
    return f"pass the folder of one of {named}, or choose: {ways}"


def _are_pairs(names: list[bytes]) -> bool:
    has_target = any(_is_made_of(words_of(name), _TARGETS, _OF_MASKS) for name in names)
    return (has_target and len(names) <= _MAX_SIDES) or {name.lower() for name in names} == {b"lr", b"hr"}


def _have_equal_files(paths: list[bytes], tops: list[bytes]) -> bool:
    """Return whether most of the first file names of all folders are equal but for the suffix."""
    firsts = [[path[len(top) :] for path in paths[rows_in(paths, top)][:_NUM_COMPARED]] for top in tops]
    stems = [{os.path.splitext(name)[0] for name in names} for names in firsts]
    return 2 * len(set.intersection(*stems)) > max(2, *map(len, stems))


def _names_in(paths: list[bytes], parts: list[_Part], unread: list[bytes]) -> set[bytes]:
    folders = ((part.top, name) for part in parts for name in folder_names(paths, part.top))
    return {name for top, name in folders if top + name + b"/" not in unread}


def _count(paths: list[bytes], top: bytes) -> int:
    rows = rows_in(paths, top)
    return rows.stop - rows.start


def _stray(paths: list[bytes], top: bytes) -> bytes | None:
    """Return an image that is in `top`, not in one of its folders; None without."""
    return next((path for path in paths[rows_in(paths, top)] if path.find(b"/", len(top)) < 0), None)


def _is_made_of(words: Collection[bytes], kinds: frozenset[bytes], others: frozenset[bytes]) -> bool:
    return not kinds.isdisjoint(words) and kinds.union(others).issuperset(words)


def is_of_masks(folder: bytes) -> bool:
    """Return whether a folder is named after masks or labels of other images."""
    return _is_made_of(words_of(folder), _MASKS, _OF_MASKS)


def _listed(folders: list[bytes]) -> str:
    return join_some([repr(os.fsdecode(folder)) for folder in folders])


def _count_unread(paths: list[bytes], splits: NDArray[np.int8], root: bytes) -> dict[str, int]:
    """Return the number of images that are not read by the folder they are in, up to two levels below the root."""
    counts: Counter[bytes] = Counter()
    for row in np.flatnonzero(splits == -1).tolist():
        names = paths[row][len(root) :].split(b"/")
        is_whole = (splits[rows_in(paths, root + names[0] + b"/")] < 0).all()
        counts[b"/".join(names[: 1 if is_whole else 2][: len(names) - 1])] += 1
    kinds = {folder: f"images in {os.fsdecode(folder)}/" if folder else "images of other splits" for folder in counts}
    return {kinds[folder]: count for folder, count in counts.items()}
