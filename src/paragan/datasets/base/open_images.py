"""Encoded images of any path: a folder, an archive, shards, WebDataset, Parquet, a folder of Hugging Face."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paragan.core.addresses import is_url
from paragan.core.errors import DataError
from paragan.core.printable import join_some
from paragan.datasets import _image_paths, _tar_files
from paragan.datasets._class_folders import pairs_error
from paragan.datasets._class_numbers import number_labels
from paragan.datasets._encoded_images import EncodedImages, ShardImages, describe_empty_classes
from paragan.datasets._file_kinds import MASKS, describe_kinds
from paragan.datasets._folder_layout import arrange
from paragan.datasets._folder_parts import Choice
from paragan.datasets._image_formats import kind_of_file
from paragan.datasets._image_paths import ArrangedPaths
from paragan.datasets._pair_files import kind_of_pairs
from paragan.datasets._split_names import NOT_READ, names_split, parse_split, splits_of_words, words_of
from paragan.datasets.base.file_readers import FileReader, FolderReader, TarReader
from paragan.datasets.base.label_files import FileLabels, LabelRow, find_labels, read_label_table
from paragan.datasets.base.open_reader import check_image_count, is_archive, open_reader, open_tars
from paragan.datasets.base.reduced_copies import without_reduced_copies
from paragan.datasets.base.table_images import TableImages, has_arrow_files, table_files
from paragan.storage.shard_folder import ShardFolder, has_shards

_NO_LABEL = LabelRow(label=None)
_NO_LABELS = (None, "", -1, "-1")  # -1: of unlabelled samples in torch and Hugging Face
_CACHE_BYTES = 16 << 30  # of remote shards on the local disk


class FileImages(EncodedImages):
    """Image files of a folder or archive."""

    def __init__(self, files: FileReader, arranged: ArrangedPaths, notices: tuple[str, ...] = ()) -> None:
        self.labels = arranged.labels
        self.class_names = arranged.class_names
        self.num_train = arranged.num_train
        self.split_hashes = arranged.split_hashes
        self.notices = (*notices, *files.notices)
        self.ignored = {**arranged.ignored, **{kind: n for kind, n in files.ignored.most_common() if n > 0}}
        self._files = files
        self._paths = arranged.paths

    def read(self, rows: Sequence[int]) -> list[bytes]:
        return [self._files.read(self.name(row)) for row in rows]

    def where(self, row: int) -> str:
        return self._files.where(self.name(row))

    def name(self, row: int) -> str:
        return os.fsdecode(self._paths[row])

    def stamp(self, row: int) -> str:
        return self._files.stamp(self.name(row))


def open_encoded_images(
    path: str, option: str = "data.path", classes: Choice = None, labels: str = ""
) -> EncodedImages:
    """Open the images of a path; only names and labels are read.

    path: a folder, a .zip or .tar file, a folder of tar files (also WebDataset's), a .parquet file or a folder of them,
    a folder of Hugging Face, or shards in a folder or at an address. option: name of the path in messages. classes:
    whether folders are classes; None: by their names. labels: a CSV file of the classes of images; empty: those next to
    the images. Raises `DataError` for a path without two images, and for folders that can be read in more than one way.
    """
    root = Path(path)
    images: EncodedImages
    if has_shards(path):
        images = ShardImages(ShardFolder(path, _CACHE_BYTES if is_url(path) else 0))
    elif path and (root.suffix == ".parquet" or has_arrow_files(root)):
        images = TableImages(table_files(root), path)
    else:
        files = open_reader(path, option=option)
        paths = files.find()
        tables = _tables_to_read(root, paths)
        if not tables:
            return _open_files(files, paths, option, classes, labels)
        images = TableImages(tables, path)
        if paths:
            images.ignored = {**images.ignored, "images in other files": len(paths)}
    if labels or classes == "none":
        raise DataError(
            f"{option}: labels of {path!r} are in it; data.labels=FILE and data.classes=none are for folders, "
            "data.labels=false trains without labels"
        )
    return images


def _tables_to_read(root: Path, paths: list[bytes]) -> list[Path]:
    """Return the Parquet files of a folder, if they are named after splits or there are no images next to them."""
    tables = table_files(root) if root.is_dir() else []
    tables = [table for table in tables if not table.with_suffix(".tar").exists()]  # as img2dataset writes them
    has_splits = any(names_split(os.fsencode(table.stem)) for table in tables)
    return tables if has_splits or not paths else []


def _open_files(files: FileReader, paths: list[bytes], option: str, classes: Choice, labels: str) -> FileImages:
    """Return the images of a folder or archive; of a folder without images, those in its tar files."""
    root = Path(files.name)
    if not paths and root.is_dir() and (tars := _tars_in(root)):
        # what is in the folder besides the tar files
        others = files.ignored - Counter(kind_of_file(os.fsencode(tar)) for tar in tars)
        files = open_tars(tars, root)
        paths = files.find()
        files.ignored += others
    check_image_count(files, paths, option)
    return _arrange_images(files, paths, classes, labels)


def _arrange_images(files: FileReader, paths: list[bytes], classes: Choice, labels: str) -> FileImages:
    """Return the sorted images of a folder or archive with their classes: those of label files, else those of folders.

    Raises `DataError` for files that are named as pairs, unless `classes` says what folders are.
    """
    file_labels = read_label_table(labels, paths, files.name) if labels else find_labels(files, paths)
    has_labels = bool(file_labels.by_path)
    # a file of labels, and data.classes=folders, may name images that look like reduced copies of others
    originals = paths if has_labels or classes == "folders" else without_reduced_copies(files, paths)
    arranged = arrange(originals, files.name, classes, has_labels)
    if has_labels:
        if file_labels.is_web and isinstance(files, TarReader):
            arranged = arranged.in_order(files.in_order(arranged.paths))
        return _label_from_files(files, arranged, file_labels)
    may_be_pairs = classes is None and len(arranged.class_names) in (0, 2)  # two folders; or files as 1_A.png, 1_B.png
    if may_be_pairs and kind_of_pairs(originals) is not None:
        raise pairs_error(files.name, list(map(os.fsencode, arranged.class_names)) or originals[:2])
    notices = [*arranged.notices, *file_labels.notices]
    if classes is None and not arranged.class_names:
        notices += describe_kinds(arranged.paths, files.name)
    if isinstance(files, TarReader) and files.has_several:
        arranged, tar_notices = _of_several_tars(files, arranged, classes)
        notices += tar_notices
    else:
        notices += _class_folder_warnings(files, paths, arranged)
    has_classes = bool(arranged.class_names or labels or file_labels.notices)
    if not has_classes and isinstance(files, FolderReader):
        notices += _unread_table(files)
    return FileImages(files, arranged, tuple(notices))


def _of_several_tars(
    files: TarReader, arranged: ArrangedPaths, classes: Choice
) -> tuple[ArrangedPaths, tuple[str, ...]]:
    """Return the images in the order of their tar files, and a notice if folders in these are not taken for classes.

    Such folders are numbers or parts more often than classes, so they are classes only with data.classes=folders.
    """
    in_order = arranged.in_order(files.in_order(arranged.paths))
    if classes == "folders" or not arranged.class_names:
        return in_order, ()
    named = join_some([repr(name) for name in arranged.class_names])
    notice = (
        f"{files.name}: folders in its tar files are not classes ({named}); data.classes=folders makes them classes"
    )
    return replace(in_order, labels=None, class_names=()), () if classes == "none" else (notice,)


def _unread_table(files: FolderReader) -> tuple[str, ...]:
    """Return a line about a table that may have the class of each image, if there is one."""
    tables = [path for path in files.label_files if path.lower().endswith(b".csv")]
    if not tables:
        return ()
    table = files.where(os.fsdecode(max(tables, key=lambda path: b"train" in path or b"label" in path)))
    return (f"{table}: not read; if it has a class for each image, pass data.labels={table}",)


def _label_from_files(files: FileReader, arranged: ArrangedPaths, labels: FileLabels) -> FileImages:
    """Return the images with classes and splits of label files; images that are left out count in `files.ignored`."""
    others = set(labels.others)
    if others:
        arranged = arranged.without(others)
        files.ignored["further images of samples"] = len(others)
    arranged = _split_by_table(files, arranged, labels)
    held_out = [] if arranged.num_train is None else arranged.paths[arranged.num_train :]
    # a test split without labels is no use for scores
    if held_out and all(labels.by_path.get(path, _NO_LABEL).label in _NO_LABELS for path in held_out):
        arranged = replace(arranged.without(set(held_out)), num_train=None)
        files.ignored["images without a label"] = len(held_out)
    missing = next((path for path in arranged.paths if path not in labels.by_path), None)
    if missing is not None:
        raise DataError(f"{files.where(os.fsdecode(missing))} has no label in {labels.where}, others have; add it")
    values = [labels.by_path[path].label for path in arranged.paths]
    classes = number_labels(values, labels.where, lambda row: os.fsdecode(arranged.paths[row]))
    arranged = replace(arranged, labels=classes.labels, class_names=classes.names)
    images = FileImages(files, arranged, (*labels.notices, *classes.notices))
    images.has_label_file = True
    return images


def _split_by_table(files: FileReader, arranged: ArrangedPaths, labels: FileLabels) -> ArrangedPaths:
    """Return the images in the splits that a column of their table names, if one does."""
    texts = [labels.by_path.get(path, _NO_LABEL).split for path in arranged.paths]
    if not any(texts):
        return arranged
    words = [word for word, _ in (parse_split(text.encode(errors="replace")) for text in texts)]
    for path, text, word in zip(arranged.paths, texts, words, strict=True):
        if word is None or "train" not in words:
            said = f"the split {text!r}" if text else "no split"
            raise DataError(f"{labels.where}: {os.fsdecode(path)} has {said}, others have; write train, val or test")
    splits = splits_of_words(words)
    files.ignored["images of other splits"] = int((splits == NOT_READ).sum())
    return arranged.in_splits(splits)


def _tars_in(root: Path) -> list[Path]:
    paths = sorted([*root.glob("*.*"), *root.glob("*/*.*")])
    return [path for path in paths if is_archive(path) and path.suffix != ".zip" and _tar_files.is_tar(path)]


def _class_folder_warnings(files: FileReader, paths: list[bytes], arranged: ArrangedPaths) -> tuple[str, ...]:
    """Return a line for all empty class folders, if there are some. paths: sorted, of both splits."""
    classes = set(map(os.fsencode, arranged.class_names))
    empty: list[str] = []
    for top in arranged.levels:
        without_images = set(files.folders(top)) - _image_paths.folder_names(paths, top) - classes
        unused = [name for name in sorted(without_images) if not MASKS.covers(words_of(name))]
        empty += [os.fsdecode(top + name) for name in unused]
    return describe_empty_classes(empty, has_classes=bool(classes))
