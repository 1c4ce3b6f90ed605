"""Labels in files next to images: WebDataset's, StyleGAN's `dataset.json`, `metadata.jsonl`, and tables of a user."""

from __future__ import annotations

import itertools
import json
import os
import re
import unicodedata
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from paragan.core.errors import DataError
from paragan.core.printable import counted, join_some
from paragan.datasets._class_numbers import raise_label_errors
from paragan.datasets._image_paths import common_folders
from paragan.datasets._label_tables import FILE_NAMES, LABEL_NAMES, STYLEGAN, decode_text, read_rows
from paragan.datasets._split_names import names_split
from paragan.datasets.base.file_readers import FileReader, FolderReader

_SPLIT_NAMES = ("split", "data_split", "set", "subset", "partition", "phase")  # if the values are names of splits
_TABLES = (b"metadata.jsonl", b"metadata.csv")
_MAX_BYTES = 128 << 20  # of a file with the labels of many images; parsing it takes several times as much
_NUM_TRIED = 100
_MAX_SAMPLE_BYTES = 1 << 20  # of a file with the label of one image
_Name = TypeVar("_Name", str, bytes)


class LabelRow(NamedTuple):
    """Label of an image, and the name of its split; empty without."""

    label: object
    split: str = ""


@dataclass(frozen=True, kw_only=True)
class FileLabels:
    """Labels by path. where: the files they are from. is_web: next to each image, as of WebDataset."""

    where: str = ""
    by_path: Mapping[bytes, LabelRow] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    is_web: bool = False
    others: list[bytes] = field(default_factory=list)  # further images of samples, as of masks


def find_labels(files: FileReader, paths: list[bytes]) -> FileLabels:
    """Return the labels in files next to sorted images, if there are some. Raises `DataError` for invalid files."""
    for top in common_folders(paths):
        table = top + STYLEGAN
        if table in files.label_files and (labels := _read_tables(files, [table])).by_path:
            return labels
    if tables := [path for path in files.label_files if path.rpartition(b"/")[2] in _TABLES]:
        return _read_tables(files, tables)
    return _read_web_labels(files, paths, b".cls") or _read_web_labels(files, paths, b".json") or FileLabels()


def check_label_table(path: str, folder: str) -> None:
    """Raise `DataError` unless there is a file of this name. folder: of the images."""
    if not Path(path).is_file():
        near = Path(folder, path)
        fix = f"data.labels={near}" if near.is_file() else "a CSV file with columns file_name and label, or true"
        raise DataError(f"data.labels: no file {path!r} in {os.getcwd()}; pass {fix}")


def read_label_table(path: str, paths: list[bytes], folder: str = "") -> FileLabels:
    """Return the labels of images in a CSV, JSON or JSONL file with columns of file names and of labels.

    File names may lack folders and suffix, or have more folders. Raises `DataError` for a file without such columns,
    if no row names an image, and if one names several. folder: of the images.
    """
    check_label_table(path, folder)
    labels, notice = _labels_of(FolderReader(Path(path).parent), Path(path).name)
    if labels is None:
        raise DataError(f"{notice}; pass a table with rows below a header, and columns named file_name and label")
    labels = {unicodedata.normalize("NFC", name): row for name, row in labels.items()}  # as `_names_of`
    image_of = _images_of_rows(labels, paths, path)
    by_path = {image: labels[row] for row, image in image_of.items()}
    others = {row: label for row, label in labels.items() if row not in image_of}
    by_path |= _labels_of_longer_names(others, [image for image in paths if image not in by_path])
    if not by_path:
        raise DataError(
            f"{path}: none of {counted(len(labels), 'row')} names an image, such as {os.fsdecode(paths[0])!r}; check it"
        )
    num_unused = len(labels) - len(by_path)
    unused = f"{path}: {num_unused:,} of {len(labels):,} rows name no image" if num_unused > 0 else ""
    return FileLabels(where=path, by_path=by_path, notices=tuple(filter(None, (unused, notice))))


def _images_of_rows(labels: Mapping[str, LabelRow], paths: list[bytes], where: str) -> dict[str, bytes]:
    """Return the image of each row whose name is that of an image, or its end, as `cat/1.png` of `train/cat/1.png`."""
    image_of: dict[str, bytes] = {}
    lengths = set(map(len, labels))
    for image in paths:
        row = next((tail for tail in _tails(image, lengths) if tail in labels), None)
        if row is not None and (other := image_of.setdefault(row, image)) != image:
            both = f"{os.fsdecode(other)!r} and {os.fsdecode(image)!r}"
            raise DataError(f"{where}: {row!r} names {both}; write file names with their folders")
    return image_of


def _labels_of_longer_names(labels: Mapping[str, LabelRow], images: list[bytes]) -> dict[bytes, LabelRow]:
    """Return the labels of images whose name is the end of a row's name, which has folders above theirs."""
    names = {image: _names_of(image) for image in images}
    wanted = set(itertools.chain.from_iterable(names.values()))
    lengths = set(map(len, wanted))  # a name of many folders has many ends
    by_name: dict[str, LabelRow] = {}
    for row, label in labels.items():
        for tail in _tails(os.fsencode(row), lengths):
            if tail in wanted:
                _add(by_name, tail, label)
    known_names = {image: [name for name in forms if name in by_name] for image, forms in names.items()}
    return {image: by_name[forms[0]] for image, forms in known_names.items() if forms}


def _tails(path: bytes, lengths: Container[int]) -> Iterator[str]:
    """Yield a path, also without suffix, and both without the first folders, if they have one of these lengths."""
    for name in _names_of(path):
        for start in (0, *(slash.end() for slash in re.finditer("/", name))):
            if len(name) - start in lengths:
                yield name[start:]


def _names_of(path: bytes) -> tuple[str, str]:
    """Return a path as text, and without suffix."""
    # an accent is a character of its own in names of macOS, and part of a letter in most
    name = unicodedata.normalize("NFC", decode_text(path, "")[0])
    return name, os.path.splitext(name)[0]


def _read_tables(files: FileReader, tables: list[bytes]) -> FileLabels:
    """Read tables with a row for each image of their folders, as image folders of Hugging Face and StyleGAN have."""
    by_path: dict[bytes, LabelRow] = {}
    for table in tables:
        where = files.where(os.fsdecode(table))
        labels, notice = _labels_of(files, os.fsdecode(table))
        if labels is None:
            return FileLabels(where=where, notices=(f"{notice}, so there are no classes",))
        folder = table.rpartition(b"/")[0]
        for name, label in labels.items():
            _add(by_path, os.path.join(folder, os.fsencode(name)), label)
        files.set_read(table)
    return FileLabels(where=where, by_path=by_path, notices=(notice,) if notice else ())


def _read_web_labels(files: FileReader, paths: list[bytes], suffix: bytes) -> FileLabels | None:
    """Read the label files that have the names of images, but for the suffix."""
    file_of = {path.removesuffix(suffix): path for path in files.label_files if path.endswith(suffix)}
    if not file_of:
        return None
    labels: dict[bytes, object] = {}
    keys = {key for path in paths for key in _keys(path) if key in file_of}
    for number, key in enumerate(sorted(keys)):
        if number == _NUM_TRIED and not labels:
            return None  # captions or boxes: opening a million of them would take minutes
        label = _read_web_label(files, os.fsdecode(file_of[key]))
        if label is not None:
            labels[key] = label
            files.set_read(file_of[key])
    by_path: dict[bytes, LabelRow] = {}
    others = []  # key.mask.png next to key.png
    for path in paths:
        sample = next((key for key in _keys(path) if key in labels), None)
        if sample is not None and path.find(b".", len(sample) + 1) < 0:
            by_path[path] = LabelRow(labels[sample])
        elif sample is not None:
            others.append(path)
    if others and not by_path:
        raise DataError(
            f"{files.where(os.fsdecode(others[0]))}: samples with labels have no image KEY.png; name the one to train "
            "on so, or unpack pairs and train with data.name=paired"
        )
    where = f"{suffix.decode()} files of {files.name}"
    return FileLabels(where=where, by_path=by_path, is_web=True, others=others) if by_path else None


def _read_web_label(files: FileReader, path: str) -> object:
    """Return the text of a `.cls` file, or the label in a `.json` file; None if it has none."""
    content = _read(files, path, _MAX_SAMPLE_BYTES)
    with raise_label_errors(files.where(path)):
        if not path.endswith(".json"):
            return decode_text(content, files.where(path))[0].strip()
        values = json.loads(content)
    names = [name for name in LABEL_NAMES if name in values] if isinstance(values, dict) else []
    return values[names[0]] if names else None


def _keys(path: bytes) -> Iterator[bytes]:
    """Yield a path, and cut at each dot of the file name, from the last to the first: names may have dots."""
    yield path
    start = path.rfind(b"/") + 1
    dot = path.rfind(b".", start)
    while dot >= 0:
        yield path[:dot]
        dot = path.rfind(b".", start, dot)


def _labels_of(files: FileReader, path: str) -> tuple[dict[str, LabelRow] | None, str]:
    """Return the labels of a table by file name, None without such columns; and a line of what is not as it should be.

    The column of splits is read if its values are names of splits.
    """
    where = files.where(path)
    text, is_legacy = decode_text(_read(files, path, _MAX_BYTES), where)
    labels: dict[str, LabelRow] = {}
    unread: list[str] = []
    split_column = None
    columns: list[str] | None = None
    for row in read_rows(text, where):
        if list(row) != columns:
            columns = list(row)
            names = {"_".join(str(name).lower().split()): name for name in columns}
            wanted = (FILE_NAMES, LABEL_NAMES, _SPLIT_NAMES)
            file, label, split = (next((names[name] for name in known if name in names), None) for known in wanted)
        if file is None or label is None:
            return None, f"{where}: no columns of file names and labels among {join_some(list(map(str, row)))}"
        unread = unread or [str(name) or "''" for name in row if name not in (file, label, split)]
        name = str(row[file]).strip().replace("\\", "/").removeprefix("./")
        with raise_label_errors(where):
            name.encode()  # JSON can hold halves of characters
        _add(labels, name, LabelRow(row[label], "" if split is None else str(row[split] or "")))
        split_column = split_column or split
    splits = {row.split.encode(errors="replace") for row in labels.values()}
    if split_column is not None and not any(map(names_split, splits)):
        unread.append(split_column)
        labels = {name: LabelRow(row.label) for name, row in labels.items()}
    notes = [f"columns that are not read: {join_some(unread)}"] if unread else []
    if is_legacy:
        notes.append("read as Windows-1252, as it is not Unicode; save it as UTF-8 if names look wrong")
    notice = f"{where}: {'; '.join(notes)}" if notes else ""
    return (labels, notice) if labels else (None, f"{where}: no labels of files")


def _add(rows: dict[_Name, LabelRow], name: _Name, row: LabelRow) -> None:
    """Add a row; the labels of two for one image become a list, and their splits a text that names none."""
    other = rows.setdefault(name, row)
    label = row.label if row.label == other.label else [other.label, row.label]
    rows[name] = LabelRow(label, row.split if row.split == other.split else f"{other.split}, {row.split}")


def _read(files: FileReader, path: str, max_bytes: int) -> bytes:
    content = files.read(path)
    if len(content) > max_bytes:
        raise DataError(f"{files.where(path)}: {len(content):,} bytes of labels, the limit is {max_bytes:,}")
    return content
