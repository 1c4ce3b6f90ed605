"""Labels in files next to images: WebDataset's, StyleGAN's `dataset.json`, `metadata.jsonl`, and tables of a user."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from paragan.core.errors import DataError
from paragan.core.printable import join_some
from paragan.datasets._encoded_images import NumberedClasses, number_classes
from paragan.datasets._image_paths import common_folders
from paragan.datasets.base.file_readers import FileReader, FolderReader

LABEL_NAMES = ("label", "labels", "fine_label", "class", "class_name", "category", "target")  # of columns
_WHOLE = re.compile(r"\s*(0|-?[1-9]\d*)\s*")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?\s*")
_PROGRAM = "write one class for each image, or train on such targets in a program, with pg.Trainer"
_FILE_NAMES = ("file_name", "filename", "file", "path", "image", "image_id", "image_path", "id", "name")
_STYLEGAN = b"dataset.json"
_TABLES = (b"metadata.jsonl", b"metadata.csv")
_MAX_BYTES = 128 << 20  # of a file with the labels of many images; parsing it takes several times as much
_NUM_TRIED = 100
_MAX_LABEL = 1 << 53  # to which floats have all integers
_MAX_SAMPLE_BYTES = 1 << 20  # of a file with the label of one image
_JsonRow = dict[str, object] | tuple[str, object]  # or a list of two
_Name = TypeVar("_Name", str, bytes)
_DAMAGE_ERRORS = (ValueError, TypeError, RecursionError, OverflowError, csv.Error)
_BEFORE_HEADER = re.compile(r"(?:[ \t]*(?:#[^\r\n]*|sep=.)?[\r\n]+)*")  # Excel writes sep=; into a first line


@dataclass(frozen=True, kw_only=True)
class FileLabels:
    """Labels by path. where: the files they are from. is_web: next to each image, as of WebDataset."""

    where: str = ""
    by_path: Mapping[bytes, object] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    is_web: bool = False
    others: list[bytes] = field(default_factory=list)  # further images of samples, as of masks


def find_labels(files: FileReader, paths: list[bytes]) -> FileLabels:
    """Return the labels in files next to sorted images, if there are some. Raises `DataError` for invalid files."""
    for top in common_folders(paths):
        table = top + _STYLEGAN
        if table in files.label_files and (labels := _read_tables(files, [table])).by_path:
            return labels
    if tables := [path for path in files.label_files if path.rpartition(b"/")[2] in _TABLES]:
        return _read_tables(files, tables)
    return _read_web_labels(files, paths, b".cls") or _read_web_labels(files, paths, b".json") or FileLabels()


def read_label_table(path: str, paths: list[bytes], folder: str = "") -> FileLabels:
    """Return the labels of images in a CSV, JSON or JSONL file with columns of file names and of labels.

    File names may lack folders and suffix, or have more folders. Raises `DataError` for a file without such columns,
    if no row names an image, and if one names several. folder: of the images.
    """
    if not Path(path).is_file():
        near = Path(folder, path)
        fix = f"data.labels={near}" if near.is_file() else "a CSV file with columns file_name and label, or true"
        raise DataError(f"data.labels: no file {path!r} in {os.getcwd()}; pass {fix}")
    labels, notice = _labels_of(_rows(FolderReader(Path(path).parent), Path(path).name), path)
    if labels is None:
        raise DataError(f"{notice}; pass a table with rows below a header, and columns named file_name and label")
    image_of: dict[str, bytes] = {}  # rows that have the names of images, or shorter ones
    for image in paths:
        row = next((tail for tail in _tails(image) if tail in labels), None)
        if row is not None and (other := image_of.setdefault(row, image)) != image:
            both = f"{os.fsdecode(other)!r} and {os.fsdecode(image)!r}"
            raise DataError(f"{path}: {row!r} names {both}; write file names with their folders")
    by_path = {image: labels[row] for row, image in image_of.items()}
    longer: dict[str, object] = {}  # rows with folders above those of the images
    for row in labels.keys() - image_of.keys():
        for tail in _tails(os.fsencode(row)):
            _add(longer, tail, labels[row])
    for image in paths:
        whole = os.fsdecode(image)
        for name in (whole, os.path.splitext(whole)[0]):
            if image not in by_path and name in longer:
                by_path[image] = longer[name]
    if not by_path:
        raise DataError(
            f"{path}: none of {len(labels):,} rows names an image, such as {os.fsdecode(paths[0])!r}; check it"
        )
    num_unused = len(labels) - len(by_path)
    unused = f"{path}: {num_unused:,} of {len(labels):,} rows name no image" if num_unused > 0 else ""
    return FileLabels(where=path, by_path=by_path, notices=tuple(filter(None, (unused, notice))))


def _tails(path: bytes) -> list[str]:
    """Return a path, also without suffix, and both without the first folders."""
    names = (os.fsdecode(path), os.fsdecode(os.path.splitext(path)[0]))
    return [name[start:] for name in names for start in (0, *(slash.end() for slash in re.finditer("/", name)))]


def number_labels(
    labels: Sequence[object], where: str, name: Callable[[int], str], names: Sequence[str] = ()
) -> NumberedClasses:
    """Number the classes of labels: integers or text, one for each image.

    where: the labels in messages. name: returns the name of an image. names: of the classes 0, 1, ...
    of integers. Raises `DataError` for other labels, as for several of one image.
    """
    with _raise_data_errors(where):
        labels = _parse(labels)
    kind = type(labels[0]) if isinstance(labels[0], int | str) else int
    for row, label in enumerate(labels):
        if isinstance(label, list | tuple | dict):
            raise DataError(f"{where}: {name(row)} has several labels, {str(label)[:40]}; {_PROGRAM}")
        if not isinstance(label, kind) or label == "":
            text = "no label" if label in (None, "") else f"the label {str(label)[:40]}"
            raise DataError(f"{where} holds neither integers nor text: {name(row)} has {text}; {_PROGRAM}")
    if isinstance(labels[0], str):
        names = sorted(set(map(str, labels)))
        number_of = {name: number for number, name in enumerate(names)}
        for text in names:
            parts = {part.strip() for part in re.split("[,;|]", text)}
            if len(parts) > 1 and parts <= number_of.keys():
                raise DataError(f"{where}: {text!r} are several labels of an image; {_PROGRAM}")
        labels = [number_of[str(label)] for label in labels]
    with _raise_data_errors(where):
        return number_classes(np.array(labels, np.int64), where, names)


def _parse(labels: Sequence[object]) -> Sequence[object]:
    """Return whole numbers, also as text or as floats, as integers, and other numbers as floats."""
    labels = [label.strip() if isinstance(label, str) else label for label in labels]
    texts = [label for label in labels if isinstance(label, str)]
    if len(texts) == len(labels):
        if all(_WHOLE.fullmatch(text) for text in texts):
            return [int(text) for text in texts]
        has_fractions = not all(text.strip().isdecimal() for text in texts)  # 007 is a name
        if has_fractions and all(_NUMBER.fullmatch(text) for text in texts):
            labels = [float(text) for text in texts]
    whole = [n for n in labels if isinstance(n, int | float) and n % 1 == 0 and abs(n) < _MAX_LABEL]
    return labels if len(whole) < len(labels) else list(map(int, whole))


def _read_tables(files: FileReader, tables: list[bytes]) -> FileLabels:
    """Read tables with a row for each image of their folders, as image folders of Hugging Face and StyleGAN have."""
    by_path: dict[bytes, object] = {}
    for table in tables:
        where = files.where(os.fsdecode(table))
        labels, notice = _labels_of(_rows(files, os.fsdecode(table)), where)
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
    by_path: dict[bytes, object] = {}
    others = []  # key.mask.png next to key.png
    for path in paths:
        sample = next((key for key in _keys(path) if key in labels), None)
        if sample is not None and path.find(b".", len(sample) + 1) < 0:
            by_path[path] = labels[sample]
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
    with _raise_data_errors(files.where(path)):
        if not path.endswith(".json"):
            return _decode(content).strip()
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


def _labels_of(rows: Iterable[Mapping[str, object]], where: str) -> tuple[dict[str, object] | None, str]:
    """Return the labels of rows by file name, None without such columns; and a line about other columns, or empty."""
    labels: dict[str, object] = {}
    unread: list[str] = []
    for row in rows:
        names = {str(name).strip().lower(): name for name in row}
        file = next((names[name] for name in _FILE_NAMES if name in names), None)
        label = next((names[name] for name in LABEL_NAMES if name in names), None)
        if file is None or label is None:
            return None, f"{where}: no columns of file names and labels among {join_some(list(map(str, row)))}"
        unread = unread or [str(name) or "''" for name in row if name not in (file, label)]
        _add(labels, str(row[file]).strip().replace("\\", "/").removeprefix("./"), row[label])
    notice = f"{where}: columns that are not read: {join_some(unread)}" if unread else ""
    return (labels, notice) if labels else (None, f"{where}: no labels of files")


def _add(labels: dict[_Name, object], name: _Name, label: object) -> None:
    """Add a label; two for one image become a list of them."""
    labels[name] = label if name not in labels or labels[name] == label else [labels[name], label]


def _rows(files: FileReader, path: str) -> Iterator[Mapping[str, object]]:
    """Yield the rows of a table by the suffix of its name: JSON, JSONL, or values between delimiters."""
    where = files.where(path)
    content = _read(files, path, _MAX_BYTES)
    suffix = os.path.splitext(path)[1].lower()
    with _raise_data_errors(where):
        if suffix == ".json":
            values = json.loads(content)
            if isinstance(values, dict) and "labels" in values:
                values = values["labels"]
            elif path.endswith(_STYLEGAN.decode()):  # a name that has other meanings, too
                values = None
            yield from _json_rows(values)
        elif suffix == ".jsonl":
            for number, line in enumerate(io.StringIO(_decode(content)), start=1):
                with _raise_data_errors(f"{where}: line {number}"):
                    if line.strip():
                        yield dict(json.loads(line))
        else:
            yield from _csv_rows(_decode(content))


def _json_rows(content: dict[str, object] | list[_JsonRow] | None) -> Iterator[Mapping[str, object]]:
    """Yield the objects of a list, or the pairs of a file and its label in a list or mapping, StyleGAN's form."""
    rows = content.items() if isinstance(content, dict) else content or ()
    for row in rows:
        yield row if isinstance(row, dict) else dict(zip(("file_name", "label"), row, strict=True))


def _csv_rows(text: str) -> Iterator[Mapping[str, object]]:
    text = _BEFORE_HEADER.sub("", text, count=1)
    delimiter = max(",;\t|", key=text.partition("\n")[0].count)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    names = [name.strip().lower() for name in rows.fieldnames or ()]
    if twice := [name for name in (*_FILE_NAMES, *LABEL_NAMES) if names.count(name) > 1]:
        raise ValueError(f"two columns are named {twice[0]}")
    return rows


def _decode(content: bytes) -> str:
    """Return text of UTF-8, 16 or 32, with or without a mark; other bytes are kept, as names of files have them."""
    text = content.decode(json.detect_encoding(content), "surrogateescape")
    if "\0" in text[:1000]:
        raise ValueError("it is no text")
    return text


def _read(files: FileReader, path: str, max_bytes: int) -> bytes:
    content = files.read(path)
    if len(content) > max_bytes:
        raise DataError(f"{files.where(path)}: {len(content):,} bytes of labels, the limit is {max_bytes:,}")
    return content


@contextmanager
def _raise_data_errors(where: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGE_ERRORS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{where}: labels cannot be read ({reason}); correct or remove the file") from None
