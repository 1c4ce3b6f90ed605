"""Tiny ImageNet: 64x64 colour images of 200 classes, 500 for training and 50 held out each.

Source: Stanford CS231n, http://cs231n.stanford.edu/tiny-imagenet-200.zip, a part of ImageNet (J.
Deng et al., "ImageNet: a large-scale hierarchical image database", CVPR 2009), whose terms apply:
for research and education. A subset of the classes works, too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from paragan.core.errors import DataError
from paragan.core.option_types import FilePath, ImageSize
from paragan.core.source import Source
from paragan.datasets import _image_paths, _synsets
from paragan.datasets.base.file_readers import FileReader
from paragan.datasets.base.open_reader import check_path, list_images

_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
_ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz")
_CLASSES = ("wnids.txt", "classes.txt")  # the first that exists lists the classes
_CLASS_NAME_FILES = ("words.txt", "classes.txt")
_ANNOTATIONS = "val_annotations.txt"


@dataclass(frozen=True)
class Options:
    """Archive `tiny-imagenet-200`, .zip or .tar, its unpacked folder, or the folder containing it.

    Training images are in train/WNID (and folders below). Held-out images are in val/WNID, or in
    val and labelled by val/val_annotations.txt.
    """

    path: FilePath = ""
    """The archive, its unpacked folder, or the folder that contains the archive."""
    size: ImageSize = 64
    """Size in pixels to which images are resized, a number or HEIGHTxWIDTH; 64 is the original."""
    flip: bool = False  # `build.data` reads it
    """Mirror half of the training images, chosen at random in every epoch."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return a split of shape (3, height, width).

    Labels number the classes in order of their WNIDs; grey becomes RGB. Only the file names are
    read (of a tar archive, all bytes); a damaged file raises `DataError` when it is fetched. Raises
    `DataError` if the archive or folder is missing, or images, classes or labels are missing in it.
    """
    files, paths = list_images(str(_find_archive(options.path)), "tiny_imagenet")
    root = _find_root(files, paths)
    train = root + b"train/"
    wnids = _class_wnids(files, paths[_image_paths.rows_in(paths, train)], root)
    top = train if split == "train" else root + b"val/"
    paths = paths[_image_paths.rows_in(paths, top)]
    if not paths:
        raise DataError(f"{_synsets.display_path(files, top)}: no held-out images; download {_URL} again")
    read_list = None if split == "train" else partial(_read_annotations, files, os.fsdecode(top) + _ANNOTATIONS)
    _, class_names = _read_first(files, root, _CLASS_NAME_FILES)
    return _synsets.source(files, paths, top, wnids, read_list, class_names, size=options.size)


def _find_archive(path: str) -> Path:
    """Return the folder or archive; if the folder contains only the archive, return that."""
    check_path(path, "tiny_imagenet", fix=f"download {_URL} and pass data.path=FILE")
    root = Path(path)
    has_train = any(root.glob("train")) or any(root.glob("*/train"))
    if root.is_dir() and not has_train:
        packed = (file for file in sorted(root.glob("tiny-imagenet*")) if file.name.endswith(_ARCHIVE_SUFFIXES))
        return next(packed, root)
    return root


def _find_root(files: FileReader, paths: list[bytes]) -> bytes:
    """Return the folder that contains `train`, with its slash; single root folders are skipped."""
    folders = _image_paths.common_folders(paths)
    root = next((top for top in folders if b"train" in _image_paths.folder_names(paths, top)), None)
    if root is None:
        layout = f"train/WNID and val, as in {Path(_URL).name}"
        raise DataError(f"{_synsets.display_path(files, folders[-1])}: no folder 'train'; data.path needs {layout}")
    return root


def _class_wnids(files: FileReader, paths: list[bytes], root: bytes) -> tuple[str, ...]:
    """Return the class folders in train. Raises `DataError` if one of the class list is missing."""
    top = root + b"train/"
    where = _synsets.display_path(files, top)
    wnids = _synsets.check_wnids(map(os.fsdecode, _image_paths.folder_names(paths, top)), where)
    listing, text = _read_first(files, root, _CLASSES)
    listed = set(_synsets.WNID.findall(text))
    if missing := sorted(listed.difference(wnids)):
        raise DataError(
            f"{where}: no images of class {missing[0]}, one of {len(listed)} in {listing}; unpack "
            "the whole archive, or remove the class from that list"
        )
    return wnids


def _read_first(files: FileReader, root: bytes, names: tuple[str, ...]) -> tuple[str, str]:
    """Return name and content of the first of these files that exists, or two empty strings."""
    for name in names:
        if files.has(path := os.fsdecode(root) + name):
            return name, files.read(path).decode("utf-8", "replace")
    return "", ""


def _read_annotations(files: FileReader, path: str) -> _synsets.WnidList:
    """Return the WNID of each image by its name without extension."""
    where = files.where(path)
    if not files.has(path):
        raise DataError(f"{where}: no such file, and the images are not in val/WNID; download {_URL} again")
    lines = files.read(path).decode("utf-8", "replace").splitlines()
    return _synsets.read_lines(lines, (r"([^\t]*)\t([^\t]*)", "a name and a WNID"), where)
