"""Folders that are named after splits: at the top, in class folders, or a test split next to others."""

from __future__ import annotations

import os

from paragan.core.errors import DataError
from paragan.datasets._file_kinds import MASKS
from paragan.datasets._folder_parts import BOTH_WAYS, PART_NAME, Choice, FolderPart, choose_one, listed, names_in
from paragan.datasets._image_paths import folder_names, has_paths, path_next_to_folders
from paragan.datasets._split_names import HELD_OUT, SPLITS, TRAIN, group_splits, parse_split


def find_parts(
    paths: list[bytes], tops: list[FolderPart], name: str, choice: Choice, has_labels: bool
) -> tuple[list[FolderPart], list[bytes]]:
    """Return the folders of both splits, which are `tops` if none are named so, and those that are not read.

    train/, val/ and test/: the first two. cat/train/, cat/val/, dog/train/, dog/val/: of both classes. cat/, dog/ and
    test/: `tops`, without test/, which is unread where folders may be classes (`choice` None), and held out where they
    are none. has_labels: a file has them.
    """
    class_choice: Choice = "none" if has_labels else choice  # folders are no classes where a file has the labels
    parts = _find_splits(paths, tops, name, class_choice) or _find_splits_of_classes(paths, tops, name, class_choice)
    if parts:
        return parts, []
    if choice == "folders" or has_labels:
        return tops, []
    untrained = _find_untrained(paths, tops, name, choice)
    if choice == "none":  # test/ is inside of one of `tops`, too; the folder that is named last decides
        return [*tops, *(FolderPart(top, HELD_OUT) for top in untrained)], []
    return tops, untrained


def _find_splits(paths: list[bytes], tops: list[FolderPart], name: str, choice: Choice) -> list[FolderPart]:
    """Return the folders of both splits in `tops`; none unless there is one for training and one to hold out.

    Raises `DataError` if they are splits of several kinds of images and nothing decides between these.
    """
    folders = sorted(names_in(paths, tops, []))
    groups = group_splits(folders)
    kinds = {kind: splits for kind, splits in groups.items() if not MASKS.covers(kind)}
    if not any(held_out for _, held_out in kinds.values()):
        return []
    if len(kinds) > 1 and choice is None:
        raise DataError(
            f"{name}: folders {listed(folders)} are splits of several kinds of images; pass the folder of one "
            f"kind, train on pairs with data.name=paired or data.name=unpaired, or choose: {BOTH_WAYS}"
        )
    if len(kinds) > 1 and choice == "folders":  # each of them is a class
        return []
    split_of: dict[bytes, int] = {}
    for train, held_out in kinds.values():
        split_of |= dict.fromkeys(train, TRAIN) | dict.fromkeys(held_out, HELD_OUT)
    parts = [
        FolderPart(top.top + folder + b"/", split, top.folder) for folder, split in split_of.items() for top in tops
    ]
    return [part for part in parts if has_paths(paths, part.top)]


def _find_splits_of_classes(paths: list[bytes], tops: list[FolderPart], name: str, choice: Choice) -> list[FolderPart]:
    """Return the folders of both splits in the class folders, as cat/train/; none if no class folder has them.

    Raises `DataError` for a class folder without them, unless a setting says that it is for training.
    """
    folders = sorted({folder for part in tops for folder in folder_names(paths, part.top)})
    if len(folders) < 2:
        return []
    classes = [FolderPart(part.top + folder + b"/", TRAIN, folder) for part in tops for folder in folders]
    parts = _find_splits(paths, classes, name, choice)
    with_splits = {part.folder for part in parts}
    whole = [part for part in classes if part.folder not in with_splits]
    if parts and choice is None and all(map(PART_NAME.fullmatch, folders)):
        named = listed(folders)
        raise DataError(f"{name}: folders {named} are parts of one set, with splits in each; {choose_one(named)}")
    if parts and whole and choice is None:
        raise DataError(
            f"{name}: other classes have folders of splits, {os.fsdecode(whole[0].top)!r} has none; move its images "
            f"into such folders, or choose: {BOTH_WAYS}"
        )
    return [*parts, *whole] if parts else []


def _find_untrained(paths: list[bytes], parts: list[FolderPart], name: str, choice: Choice) -> list[bytes]:
    """Return the folders that are named after held-out splits, next to others: test/, not `DIV2K_test`.

    Without others there is nothing to train on: raises `DataError`, unless a setting says what folders are.
    """
    folders = sorted(names_in(paths, parts, []))
    parsed = [parse_split(folder) for folder in folders]
    is_untrained = all(split not in (None, "train") for split, _ in parsed) and len({kind for _, kind in parsed}) == 1
    if is_untrained and not any(path_next_to_folders(paths, part.top) for part in parts):
        if choice is not None:
            return []
        raise DataError(
            f"{name}: {listed(folders)} are named after splits, but there is none for training; rename one to train, "
            f"or choose: {BOTH_WAYS}"
        )
    untrained = [
        folder for folder, (split, kind) in zip(folders, parsed, strict=True) if split in SPLITS[1:] and not kind
    ]
    return [part.top + folder + b"/" for part in parts for folder in untrained]
