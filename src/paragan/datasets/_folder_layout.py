"""What folders of images are: the two splits, classes, or neither."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.core.printable import join_some
from paragan.datasets import _image_paths, _split_names
from paragan.datasets._image_paths import ArrangedPaths, common_folders, folder_names, has_paths, path_next_to_folders
from paragan.datasets._split_names import HELD_OUT, NOT_READ, SPLITS, TRAIN, are_words_of, parse_split, words_of

Choice = Literal["folders", "none"] | None

# folders of one set, never classes
_PART_NAME = re.compile(rb"(?i)(k?[_-]?fold|cv|split|part|batch|chunk|shard|subset|run|trial|session|seed)[ _-]?\d+")
_MASK = -2  # in arrays of the split of each path
_MAX_SIDES = 3  # of equal file names, such as images, masks and edges
_UNTRAINED = frozenset((split, ()) for split in SPLITS[1:])
_BOTH_WAYS = "data.classes=folders makes them classes, data.classes=none trains without classes"


@dataclass(frozen=True)
class _Part:
    """A folder whose images are of one split, and perhaps of one class, which is called `folder`."""

    top: bytes
    split: int = TRAIN
    folder: bytes | None = None


def arrange(paths: list[bytes], name: str, choice: Choice = None, has_labels: bool = False) -> ArrangedPaths:
    """Return the images of both splits with their classes, from sorted paths.

    Folders named after training and another split are the splits, also within each class folder; images elsewhere are
    not read. Without them, the split follows from a hash of the path: an image stays in its split when others are
    added. Classes are the folders at the top of a split, if two or more look like classes. A single folder is skipped.

    choice: whether folders are classes; None: by their names. has_labels: labels come from files. Raises
    `DataError` if images are next to class folders, and for folders of pairs, or of splits without training.
    """
    *parents, root = common_folders(paths)
    parts, unread = _find_parts(paths, _descend(paths, [_Part(root)], [], choice), name, choice, has_labels)
    parts = _descend(paths, parts, unread, choice)
    levels = (*parents, *(part.top for part in parts))
    notices: tuple[str, ...] = ()
    if choice == "none" or has_labels:
        parts = [replace(part, folder=None) for part in parts]
    elif parts[0].folder is None:
        parts, notices = _find_classes(paths, parts, unread, name, choice)
    if choice is None and not has_labels:
        notices += _check_classes(paths, parts, name)
    splits = _splits_of_paths(paths, parts, unread, choice)
    classes = sorted({part.folder for part in parts if part.folder is not None})
    return ArrangedPaths(
        paths=paths,
        labels=_labels_of_paths(paths, parts, classes) if classes else None,
        class_names=tuple(folder.decode("utf-8", "backslashreplace") for folder in classes),
        num_train=None,
        levels=levels,
        ignored=_count_unread(paths, splits, root),
        notices=notices,
    ).in_splits(splits)


def _find_parts(
    paths: list[bytes], tops: list[_Part], name: str, choice: Choice, has_labels: bool
) -> tuple[list[_Part], list[bytes]]:
    """Return the folders of both splits, which are `tops` if none are named so, and those that are not read."""
    class_choice: Choice = "none" if has_labels else choice
    parts = _find_splits(paths, tops, name, class_choice) or _find_splits_of_classes(paths, tops, name, class_choice)
    if parts:
        return parts, []
    if choice == "folders" or has_labels:
        return tops, []
    untrained = _find_untrained(paths, tops, name, choice)
    if choice == "none":  # without classes, a test split is one also without a folder of training
        return [*tops, *(_Part(top, HELD_OUT) for top in untrained)], []
    return tops, untrained


def _splits_of_paths(paths: list[bytes], parts: list[_Part], unread: list[bytes], choice: Choice) -> NDArray[np.int8]:
    splits = np.full(len(paths), NOT_READ, np.int8)
    for part in parts:
        splits[_image_paths.rows_in(paths, part.top)] = part.split
    for top in unread:
        splits[_image_paths.rows_in(paths, top)] = NOT_READ
    if choice is None:
        splits[_split_names.masks_of_images(paths)] = _MASK
    if not (splits == HELD_OUT).any():
        _split_names.split_by_names(paths, splits)
    return splits


def _labels_of_paths(paths: list[bytes], parts: list[_Part], classes: list[bytes]) -> NDArray[np.int32]:
    labels = np.zeros(len(paths), np.int32)
    numbers: dict[bytes | None, int] = {folder: number for number, folder in enumerate(classes)}
    for part in parts:
        labels[_image_paths.rows_in(paths, part.top)] = numbers.get(part.folder, 0)
    return labels


def _find_splits(paths: list[bytes], tops: list[_Part], name: str, choice: Choice) -> list[_Part]:
    """Return the folders of both splits in `tops`; none without one for training and another.

    Raises `DataError` if they are splits of several kinds of images and nothing decides between these.
    """
    folders = sorted(_names_in(paths, tops, []))
    groups = _split_names.group_splits(folders)
    kinds = {kind: splits for kind, splits in groups.items() if not are_words_of(kind, _split_names.MASKS)}
    if not any(held_out for _, held_out in kinds.values()):
        return []
    if len(kinds) > 1 and choice is None:
        raise DataError(
            f"{name}: folders {_listed(folders)} are splits of several kinds of images; pass the folder of one "
            f"kind, train on pairs with data.name=paired or data.name=unpaired, or choose: {_BOTH_WAYS}"
        )
    if len(kinds) > 1 and choice == "folders":
        return []
    split_of: dict[bytes, int] = {}
    for train, held_out in kinds.values():
        split_of |= dict.fromkeys(train, TRAIN) | dict.fromkeys(held_out, HELD_OUT)
    parts = [_Part(top.top + folder + b"/", split, top.folder) for folder, split in split_of.items() for top in tops]
    return [part for part in parts if has_paths(paths, part.top)]


def _find_splits_of_classes(paths: list[bytes], tops: list[_Part], name: str, choice: Choice) -> list[_Part]:
    """Return the folders of both splits in the class folders; none if no class folder has them.

    Raises `DataError` for a class folder without them, unless a setting says that it is for training.
    """
    folders = sorted({folder for part in tops for folder in folder_names(paths, part.top)})
    if len(folders) < 2:
        return []
    classes = [_Part(part.top + folder + b"/", TRAIN, folder) for part in tops for folder in folders]
    parts = _find_splits(paths, classes, name, choice)
    with_splits = {part.folder for part in parts}
    whole = [part for part in classes if part.folder not in with_splits]
    if parts and choice is None and all(map(_PART_NAME.fullmatch, folders)):
        named = _listed(folders)
        raise DataError(f"{name}: folders {named} are parts of one set, with splits in each; {_choose_one(named)}")
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
    if is_untrained and not any(path_next_to_folders(paths, part.top) for part in parts):
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
        images = {folder for folder in names if are_words_of(words[folder] - common, _split_names.IMAGES)}
        masks = {folder for folder in names if are_words_of(words[folder] - common, _split_names.MASKS)}
        has_masks = choice is None and images and masks and images | masks == names
        if not has_masks:
            has_splits = any(part.split == HELD_OUT for part in parts)
            is_nested = has_splits and all(map(_split_names.names_split, names))  # train/train/, test/test/
            if not (is_nested or len(names) == 1) or any(path_next_to_folders(paths, part.top) for part in parts):
                return parts
        entered = sorted(images if has_masks else names)
        parts = [replace(part, top=part.top + folder + b"/") for part in parts for folder in entered]
        parts = [part for part in parts if has_paths(paths, part.top)]


def _find_classes(
    paths: list[bytes], parts: list[_Part], unread: list[bytes], name: str, choice: Choice
) -> tuple[list[_Part], tuple[str, ...]]:
    """Return the class folders in `parts`, and a warning where they may be none."""
    names = sorted(_names_in(paths, parts, unread))
    if len(names) < 2:
        return parts, ()
    # not a test split without class folders
    parts = [part for part in parts if part.split != HELD_OUT or folder_names(paths, part.top)]
    if choice is None and _are_numbered_parts(paths, parts, names):
        return parts, (f"{name}: folders {_listed(names)} are read as numbered parts of one set; {_BOTH_WAYS}",)
    stray = next((path for part in parts if (path := path_next_to_folders(paths, part.top))), None)
    if stray is not None:
        raise DataError(
            f"{name}: {os.fsdecode(stray)!r} is next to {len(names)} class folders; move it into one of them, or pass "
            "data.classes=none"
        )
    if choice is None and _are_pairs(names):
        raise pairs_error(name, names)
    notices: tuple[str, ...] = ()
    first_folders = [parts[0].top + folder + b"/" for folder in names]
    are_sides = names == [b"a", b"b"]
    if choice is None and len(names) <= _MAX_SIDES and _image_paths.have_equal_files(paths, first_folders, are_sides):
        notices = (
            f"{name}: folders {_listed(names)} hold files of equal names and are read as classes; {_BOTH_WAYS}; of "
            "two folders named A and B, data.name=paired trains on pairs",
        )
    classes = [_Part(part.top + folder + b"/", part.split, folder) for part in parts for folder in names]
    return [part for part in classes if has_paths(paths, part.top)], notices


def _are_numbered_parts(paths: list[bytes], parts: list[_Part], names: list[bytes]) -> bool:
    """Return whether folders are parts of one set: 0001 and 0002, or part_1 and part_2 without folders in them."""
    if all(name.isdigit() and len(name) == len(names[0]) > 2 for name in names):
        return True
    inner = [folder_names(paths, part.top + name + b"/") for part in parts for name in names]
    return all(map(_PART_NAME.fullmatch, names)) and all(len(folders) < 2 for folders in inner)


def _check_classes(paths: list[bytes], parts: list[_Part], name: str) -> tuple[str, ...]:
    """Return a line about folders in those of classes.

    Raises `DataError` if the names of classes, or of the folders in them, say that these may be something else.
    """
    inner: dict[bytes, frozenset[bytes]] = {}  # folders in those of classes, without numbered parts of one set
    for part in parts:
        if part.folder and part.split == TRAIN:
            folders = folder_names(paths, part.top)
            inner[part.folder] = frozenset(name for name in folders if not _PART_NAME.fullmatch(name))
    splits = [(split, rest) for split, rest in map(parse_split, inner) if split is not None]
    words = {split == "train" for split, _ in splits}
    are_splits = words == {True, False} and any(not rest for _, rest in splits)  # train and val_photos
    has_equal = len(inner) > 1 and len(set(inner.values())) == 1
    doubtful = [
        folder
        for folder, folders in inner.items()
        if len(folders) > 1 and (has_equal or folders <= inner.keys() or _is_whole_set(folder))
    ]
    if doubtful or are_splits:
        within = f", and {_listed(sorted(inner[doubtful[0]]))} in them the classes" if doubtful else ""
        named = _listed(sorted(inner))
        raise DataError(
            f"{name}: folders {named} may be no classes{within}; name splits train and val, {_choose_one(named)}"
        )
    merged = [folder for folder, folders in inner.items() if len(folders) > 1]
    line = f"{name}: {_listed(merged)} are one class each; move the folders in them up to make these the classes"
    return (line,) if merged else ()


def _is_whole_set(folder: bytes) -> bool:
    return parse_split(folder) == ("train", ()) or are_words_of(words_of(folder), _split_names.IMAGES)


def pairs_error(name: str, folders: list[bytes]) -> DataError:
    """Return the error for folders or files that look like the sides of pairs."""
    return DataError(
        f"{name}: {_listed(folders)} look like images and their counterparts; train on them with "
        f"data.name=paired or data.name=unpaired, or choose: {_BOTH_WAYS}"
    )


def _choose_one(named: str) -> str:
    return f"pass the folder of one of {named}, or choose: {_BOTH_WAYS.replace('them', named)}"


def _are_pairs(names: list[bytes]) -> bool:
    has_target = any(are_words_of(words_of(name), _split_names.TARGETS) for name in names)
    return (has_target and len(names) <= _MAX_SIDES) or {name.lower() for name in names} == {b"lr", b"hr"}


def _names_in(paths: list[bytes], parts: list[_Part], unread: list[bytes]) -> set[bytes]:
    folders = ((part.top, name) for part in parts for name in folder_names(paths, part.top))
    return {name for top, name in folders if top + name + b"/" not in unread}


def _listed(folders: list[bytes]) -> str:
    return join_some([repr(os.fsdecode(folder)) for folder in folders])


def _count_unread(paths: list[bytes], splits: NDArray[np.int8], root: bytes) -> dict[str, int]:
    """Return the number of images that are not read by the folder they are in, up to two levels below the root."""
    counts: Counter[bytes] = Counter()
    for row in np.flatnonzero(splits == NOT_READ).tolist():
        names = paths[row][len(root) :].split(b"/")
        is_whole = (splits[_image_paths.rows_in(paths, root + names[0] + b"/")] < 0).all()
        counts[b"/".join(names[: 1 if is_whole else 2][: len(names) - 1])] += 1
    kinds = {folder: f"images in {os.fsdecode(folder)}/" if folder else "images of other splits" for folder in counts}
    num_masks = int((splits == _MASK).sum())
    return {kinds[folder]: count for folder, count in counts.items()} | ({"masks": num_masks} if num_masks else {})
