"""What folders of images are: the two splits, classes, or neither."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from paragan.datasets import _image_paths
from paragan.datasets._class_folders import check_classes, find_classes
from paragan.datasets._file_kinds import IMAGES, MASKS, masks_of_images
from paragan.datasets._folder_parts import Choice, FolderPart, names_in
from paragan.datasets._image_paths import ArrangedPaths, common_folders, has_paths, path_next_to_folders
from paragan.datasets._split_folders import find_parts
from paragan.datasets._split_names import HELD_OUT, NOT_READ, names_split, split_by_names, words_of

_MASK = -2  # in arrays of the split of each path


def arrange(paths: list[bytes], name: str, choice: Choice = None, has_labels: bool = False) -> ArrangedPaths:
    """Return the images of both splits with their classes, from sorted paths.

    Folders named after training and another split are the splits, also within each class folder; images elsewhere are
    not read. Without them, the split follows from a hash of the path: an image stays in its split when others are
    added. Classes are the folders at the top of a split, if two or more look like classes. A single folder is skipped.

    choice: whether folders are classes; None: by their names. has_labels: labels come from files. Raises
    `DataError` if images are next to class folders, and for folders of pairs, or of splits without training.
    """
    *parents, root = common_folders(paths)
    tops = _descend(paths, [FolderPart(root)], [], choice)  # single folders may be above the splits, and below them
    parts, unread = find_parts(paths, tops, name, choice, has_labels)
    parts = _descend(paths, parts, unread, choice)
    levels = (*parents, *(part.top for part in parts))
    notices: tuple[str, ...] = ()
    if choice == "none" or has_labels:
        parts = [replace(part, folder=None) for part in parts]
    elif parts[0].folder is None:
        parts, notices = find_classes(paths, parts, unread, name, choice)
    if choice is None and not has_labels:
        notices += check_classes(paths, parts, name)
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


def _splits_of_paths(
    paths: list[bytes], parts: list[FolderPart], unread: list[bytes], choice: Choice
) -> NDArray[np.int8]:
    splits = np.full(len(paths), NOT_READ, np.int8)
    for part in parts:
        splits[_image_paths.rows_in(paths, part.top)] = part.split
    for top in unread:
        splits[_image_paths.rows_in(paths, top)] = NOT_READ
    if choice is None:
        splits[masks_of_images(paths)] = _MASK
    if not (splits == HELD_OUT).any():
        split_by_names(paths, splits)
    return splits


def _labels_of_paths(paths: list[bytes], parts: list[FolderPart], classes: list[bytes]) -> NDArray[np.int32]:
    labels = np.zeros(len(paths), np.int32)
    numbers: dict[bytes | None, int] = {folder: number for number, folder in enumerate(classes)}
    for part in parts:
        labels[_image_paths.rows_in(paths, part.top)] = numbers.get(part.folder, 0)
    return labels


def _descend(paths: list[bytes], parts: list[FolderPart], unread: list[bytes], choice: Choice) -> list[FolderPart]:
    """Enter folders that mean nothing, until there are several, or images next to them.

    Those are a single folder, train/train/ and test/test/, and, without a `choice`, images/ next to masks/.
    """
    while True:
        names = names_in(paths, parts, unread)
        entered = _folders_next_to_masks(names) if choice is None else set()
        if not entered:
            has_splits = any(part.split == HELD_OUT for part in parts)
            is_level = len(names) == 1 or (has_splits and all(map(names_split, names)))
            if not is_level or any(path_next_to_folders(paths, part.top) for part in parts):
                return parts
            entered = names
        parts = [replace(part, top=part.top + folder + b"/") for part in parts for folder in sorted(entered)]
        parts = [part for part in parts if has_paths(paths, part.top)]


def _folders_next_to_masks(names: set[bytes]) -> set[bytes]:
    """Return the folders of images if all others are of masks, as `img` and `mask`, or `set1_img` and `set1_mask`."""
    words = {folder: set(words_of(folder)) for folder in names}
    common = set.intersection(*words.values()) if len(names) > 1 else set()
    images = {folder for folder in names if IMAGES.covers(words[folder] - common)}
    masks = {folder for folder in names if MASKS.covers(words[folder] - common)}
    return images if masks and images | masks == names else set()


def _count_unread(paths: list[bytes], splits: NDArray[np.int8], root: bytes) -> dict[str, int]:
    """Return the number of images that are not read by the folder they are in, up to two levels below the root."""
    counts: Counter[bytes] = Counter()
    partly_read = {paths[row][len(root) :].partition(b"/")[0] for row in np.flatnonzero(splits >= 0).tolist()}
    for row in np.flatnonzero(splits == NOT_READ).tolist():
        folders = paths[row][len(root) :].split(b"/")[:-1]
        depth = 2 if folders and folders[0] in partly_read else 1
        counts[b"/".join(folders[:depth])] += 1
    kinds = {folder: f"images in {os.fsdecode(folder)}/" if folder else "images of other splits" for folder in counts}
    num_masks = int((splits == _MASK).sum())
    return {kinds[folder]: count for folder, count in counts.items()} | ({"masks": num_masks} if num_masks else {})
