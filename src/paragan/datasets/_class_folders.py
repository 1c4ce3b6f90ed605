"""Folders that are classes, and errors and warnings where they may be something else."""

from __future__ import annotations

import os

from paragan.core.errors import DataError
from paragan.datasets import _image_paths
from paragan.datasets._file_kinds import IMAGES, TARGETS
from paragan.datasets._folder_parts import BOTH_WAYS, PART_NAME, Choice, FolderPart, choose_one, listed, names_in
from paragan.datasets._image_paths import folder_names, has_paths, path_next_to_folders
from paragan.datasets._split_names import HELD_OUT, TRAIN, parse_split, words_of

_MAX_SIDES = 3  # folders that may be sides of pairs, such as images, masks and edges


def find_classes(
    paths: list[bytes], parts: list[FolderPart], unread: list[bytes], name: str, choice: Choice
) -> tuple[list[FolderPart], tuple[str, ...]]:
    """Return the class folders in `parts`, and a warning where they may be none.

        faces/ and masks/, or lr/ and hr/   `DataError`: they may be pairs 0001/ 0002/, or part_1/ part_2/     parts of
        one set, which are no classes; warning a/x.png b/x.png, a/y.png b/y.png    classes; warning: they may be pairs
        others                              classes; `DataError` for images next to them

    If `choice` says that folders are classes, the last line holds for all.
    """
    names = sorted(names_in(paths, parts, unread))
    if len(names) < 2:
        return parts, ()
    # not a test split without class folders
    parts = [part for part in parts if part.split != HELD_OUT or folder_names(paths, part.top)]
    if choice is None and _are_numbered_parts(paths, parts, names):
        return parts, (f"{name}: folders {listed(names)} are read as numbered parts of one set; {BOTH_WAYS}",)
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
            f"{name}: folders {listed(names)} hold files of equal names and are read as classes; {BOTH_WAYS}; of "
            "two folders named A and B, data.name=paired trains on pairs",
        )
    classes = [FolderPart(part.top + folder + b"/", part.split, folder) for part in parts for folder in names]
    return [part for part in classes if has_paths(paths, part.top)], notices


def _are_numbered_parts(paths: list[bytes], parts: list[FolderPart], names: list[bytes]) -> bool:
    """Return whether folders are parts of one set: 0001 and 0002, or part_1 and part_2 without folders in them."""
    if all(name.isdigit() and len(name) == len(names[0]) > 2 for name in names):
        return True
    inner = [folder_names(paths, part.top + name + b"/") for part in parts for name in names]
    return all(map(PART_NAME.fullmatch, names)) and all(len(folders) < 2 for folders in inner)


def check_classes(paths: list[bytes], parts: list[FolderPart], name: str) -> tuple[str, ...]:
    """Return a line about classes that hold several folders.

    Raises `DataError` where the classes may be something else: splits, such as train and val_cats, or what holds the
    classes: the folders in all of them are the same, or called as classes, or one is called as a whole set (images).
    """
    inner: dict[bytes, frozenset[bytes]] = {}  # folders in those of classes, without numbered parts of one set
    for part in parts:
        if part.folder and part.split == TRAIN:
            folders = folder_names(paths, part.top)
            inner[part.folder] = frozenset(name for name in folders if not PART_NAME.fullmatch(name))
    splits = [(split, rest) for split, rest in map(parse_split, inner) if split is not None]
    has_train_and_others = len({split == "train" for split, _ in splits}) == 2
    are_splits = has_train_and_others and any(not rest for _, rest in splits)
    several = {folder: folders for folder, folders in inner.items() if len(folders) > 1}
    are_same = len(inner) > 1 and len(set(inner.values())) == 1
    doubtful = [
        folder for folder, folders in several.items() if are_same or folders <= inner.keys() or _is_whole_set(folder)
    ]
    if doubtful or are_splits:
        within = f", and {listed(sorted(inner[doubtful[0]]))} in them the classes" if doubtful else ""
        named = listed(sorted(inner))
        raise DataError(
            f"{name}: folders {named} may be no classes{within}; name splits train and val, {choose_one(named)}"
        )
    line = f"{name}: {listed(list(several))} are one class each; move the folders in them up to make these the classes"
    return (line,) if several else ()


def _is_whole_set(folder: bytes) -> bool:
    return parse_split(folder) == ("train", ()) or IMAGES.covers(words_of(folder))


def pairs_error(name: str, folders: list[bytes]) -> DataError:
    """Return the error for folders or files that look like the sides of pairs."""
    return DataError(
        f"{name}: {listed(folders)} look like images and their counterparts; train on them with "
        f"data.name=paired or data.name=unpaired, or choose: {BOTH_WAYS}"
    )


def _are_pairs(names: list[bytes]) -> bool:
    has_target = any(TARGETS.covers(words_of(name)) for name in names)
    return (has_target and len(names) <= _MAX_SIDES) or {name.lower() for name in names} == {b"lr", b"hr"}
