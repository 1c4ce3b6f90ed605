"""Warnings of folders that stand where class folders stand and have no images, and are therefore not classes."""

from __future__ import annotations

import os

from paragan.datasets._image_files import FileReader
from paragan.datasets._image_paths import SplitPaths, class_folder_levels, folder_names

_MOST_NAMED = 5


def class_folder_warnings(files: FileReader, paths: list[bytes], part: SplitPaths, split: str) -> tuple[str, ...]:
    """A line for empty class folders, and one for each class without training images. paths: sorted, of both parts."""
    classes = {os.fsencode(name) for name in part.class_names}
    tops = class_folder_levels(paths)
    empty = [
        top + folder
        for top in tops
        for folder in sorted(set(files.folders(top)) - folder_names(paths, len(top), top))
        if folder not in classes
    ]
    found = [_empty(empty, bool(part.class_names))] if empty else []
    if split == "train" and part.labels is not None:
        with_images = set(part.labels.tolist())
        missing = [name for label, name in enumerate(part.class_names) if label not in with_images]
        found += [f"class {name!r} has no images to train on" for name in missing[:_MOST_NAMED]]
    return tuple(found)


def _empty(folders: list[bytes], has_classes: bool) -> str:
    names = [repr(os.fsdecode(folder)) for folder in folders]
    named = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    if len(names) == 1:
        line = f"class folder {named} has no images; it is not a class"
    else:
        line = f"{len(names)} class folders have no images; they are not classes: {named}"
    return line if has_classes else f"{line}; fewer than two folders have images, so no classes are left"
