"""Warnings about class folders without images."""

from __future__ import annotations

import os

from paragan.datasets._image_files import FileReader
from paragan.datasets._image_paths import SplitPaths, class_folder_levels, folder_names

_MAX_NAMED = 5


def class_folder_warnings(files: FileReader, paths: list[bytes], part: SplitPaths, split: str) -> tuple[str, ...]:
    """Return a line for all empty class folders and a line per class without training images.

    paths: sorted, of both splits.
    """
    classes = {os.fsencode(name) for name in part.class_names}
    empty: list[bytes] = []
    for top in class_folder_levels(paths):
        empty += _empty_folders(files, paths, top, classes)
    lines = [_empty_line(empty, bool(part.class_names))] if empty else []
    if split == "train" and part.labels is not None:
        with_images = set(part.labels.tolist())
        missing = [name for label, name in enumerate(part.class_names) if label not in with_images]
        lines += [f"class {name!r} has no training images" for name in missing[:_MAX_NAMED]]
    return tuple(lines)


def _empty_folders(files: FileReader, paths: list[bytes], top: bytes, classes: set[bytes]) -> list[bytes]:
    """Return the paths of the folders in `top` that contain no image and are not classes."""
    without_images = set(files.folders(top)) - folder_names(paths, len(top), top)
    return [top + folder for folder in sorted(without_images - classes)]


def _empty_line(folders: list[bytes], has_classes: bool) -> str:
    names = [repr(os.fsdecode(folder)) for folder in folders]
    listed = ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")
    if len(names) == 1:
        line = f"class folder {listed} has no images; it is not a class"
    else:
        line = f"{len(names)} class folders have no images; they are not classes: {listed}"
    return line if has_classes else f"{line}; fewer than two folders have images, so no classes are left"
