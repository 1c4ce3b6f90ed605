"""Tiny ImageNet: 64x64 colour images of 200 classes, 500 each to train with and 50 held out; or some of the classes.

Source: Stanford CS231n, http://cs231n.stanford.edu/tiny-imagenet-200.zip, a part of ImageNet (J. Deng et al.,
"ImageNet: a large-scale hierarchical image database", CVPR 2009), whose terms apply: for research and education.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paragan.core.errors import DataError
from paragan.core.option_types import FilePath, Natural
from paragan.core.protocols import Source
from paragan.datasets import _archives, _image_paths, _synsets
from paragan.datasets._image_files import FileReader

_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
_ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz")
_CLASSES = ("wnids.txt", "classes.txt")  # the first that is there says which classes there should be
_NAMES = ("words.txt", "classes.txt")
_ANNOTATIONS = "val_annotations.txt"
_TEXTS = frozenset((*_CLASSES, *_NAMES, _ANNOTATIONS))


@dataclass(frozen=True)
class Options:
    """`tiny-imagenet-200.zip`, a tar archive, their unpacked folder, or the folder that holds an archive.

    Training images are in train/WNID (and folders below). Held-out images are those in val: in val/WNID, or labelled by
    val/val_annotations.txt.
    """

    path: FilePath = ""
    """The archive, its unpacked folder, or the folder that holds the archive."""
    size: Literal[8, 16, 32, 64, 128] = 64
    """Height and width in pixels that images are resized to; 64 is the original."""
    cache_mb: Natural = 128
    """MiB of decoded images held in memory, per split. All training images take 1,172."""
    flip: bool = False
    """Mirror half of the training images, drawn anew in every epoch."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """(3, size, size). Labels count the classes in order of their WNIDs; grey pictures become colour.

    Only the names are read now (of a tar archive all bytes); a damaged file is a `DataError` when it is fetched.
    Raises `DataError` where there is no such archive or folder, or pictures, classes or labels are missing in it.
    """
    files, paths = _archives.list_images(str(_find_archive(options.path)), _TEXTS)
    root = _find_root(files, paths)
    tops = {"train": root + b"train/", "held_out": root + b"val/"}
    parts = {name: paths[_image_paths.prefix_range(paths, top)] for name, top in tops.items()}
    wnids = _class_wnids(files, parts["train"], root)
    mine, top = parts[split], tops[split]
    where = _display_path(files, top)
    if not mine:
        raise DataError(f"{where}: found no picture, expected those held out; get {_URL} again")
    if split == "train" or _synsets.has_class_folders(mine, top):
        labels = _synsets.labels_from_folders(mine, top, wnids, where)
    else:
        labels = _synsets.labels_from_list(
            mine, _read_annotations(files, top), wnids, files.where(os.fsdecode(top) + _ANNOTATIONS)
        )
    names = _synsets.class_names(wnids, _read_first(files, root, _NAMES)[1])
    return _synsets.source(files, mine, labels, names, options.size, options.cache_mb)


def _find_archive(path: str) -> Path:
    """The folder or archive; of a folder that holds nothing but the archive, that."""
    root = Path(path)
    if not path or not root.exists():
        found = f"no {path!r}" if path else "nothing"
        raise DataError(
            f"data.path: found {found}, expected Tiny ImageNet's folder or archive; get {_URL} and give data.path=FILE"
        )
    if root.is_dir() and not any(any(root.glob(pattern)) for pattern in ("train", "*/train")):
        packed = (file for file in sorted(root.glob("tiny-imagenet*")) if file.name.endswith(_ARCHIVE_SUFFIXES))
        return next(packed, root)
    return root


def _find_root(files: FileReader, paths: list[bytes]) -> bytes:
    """The folder that `train` lies in, with its slash; folders that are alone are looked through."""
    root = b""
    while not _image_paths.folder_names(paths, len(root)) >= {b"train"}:
        alone = _image_paths.single_root_folder([path[len(root) :] for path in paths])
        if not alone:
            expected = f"train/WNID and val, as in {Path(_URL).name}"
            raise DataError(
                f"{_display_path(files, root)}: found no folder 'train', expected {expected}; check data.path"
            )
        root += alone
    return root


def _class_wnids(files: FileReader, paths: list[bytes], root: bytes) -> tuple[str, ...]:
    """The folders in train; none that the list of classes has may be missing."""
    top = root + b"train/"
    where = _display_path(files, top)
    wnids = _synsets.check_wnids(map(os.fsdecode, _image_paths.folder_names(paths, len(top))), where)
    listing, text = _read_first(files, root, _CLASSES)
    wanted = _synsets.find_wnids(text)
    if missing := sorted(wanted.difference(wnids)):
        raise DataError(
            f"{where}: found no picture of {missing[0]}, expected {len(wanted)} classes, as {listing} lists; unpack "
            "the whole archive, or take out of that list what shall not be there"
        )
    return wnids


def _display_path(files: FileReader, folder: bytes) -> str:
    return files.where(os.fsdecode(folder)).rstrip("/: ")


def _read_first(files: FileReader, root: bytes, names: tuple[str, ...]) -> tuple[str, str]:
    """Name and content of the first of these files that is there; empty where none is."""
    for name in names:
        if files.has(path := os.fsdecode(root) + name):
            return name, files.read(path).decode("utf-8", "replace")
    return "", ""


def _read_annotations(files: FileReader, top: bytes) -> dict[str, str]:
    """The WNID of every picture, by its name without the ending: lines of name, WNID and a box."""
    path = os.fsdecode(top) + _ANNOTATIONS
    where = files.where(path)
    if not files.has(path):
        raise DataError(f"{where}: found no such file, expected it, or pictures in val/WNID; get {_URL} again")
    class_of = {}
    lines = files.read(path).decode("utf-8", "replace").splitlines()
    for number, line in enumerate(lines, start=1):
        words = line.split("\t")
        if len(words) < 2:
            found = repr(line[:40])
            raise DataError(f"{where}: line {number}: found {found}, expected a name and a WNID; get the file again")
        class_of[Path(words[0]).stem] = words[1]
    return class_of
