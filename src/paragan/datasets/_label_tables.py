"""Rows of tables of labels, as text of JSON, JSONL or CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping

from paragan.core.errors import DataError
from paragan.datasets._class_numbers import raise_label_errors

LABEL_NAMES = ("label", "labels", "fine_label", "class", "class_name", "category", "target")  # of columns
FILE_NAMES = ("file_name", "filename", "file", "path", "image", "image_id", "image_path", "id", "name")
STYLEGAN = b"dataset.json"
_JsonRow = dict[str, object] | tuple[str, object]  # or a list of two
_BEFORE_HEADER = re.compile(r"(?:[ \t]*(?:#[^\r\n]*|sep=.)?[\r\n]+)*")  # Excel writes sep=; into a first line


def read_rows(text: str, where: str) -> Iterator[Mapping[str, object]]:
    """Yield the rows of a table by the suffix of its name: JSON, JSONL, or values between delimiters."""
    suffix = os.path.splitext(where)[1].lower()
    with raise_label_errors(where):
        if suffix == ".json":
            values = json.loads(text)
            if isinstance(values, dict) and "labels" in values:
                values = values["labels"]
            elif where.endswith(STYLEGAN.decode()):  # a name that has other meanings, too
                values = None
            yield from _json_rows(values)
        elif suffix == ".jsonl":
            for number, line in enumerate(io.StringIO(text), start=1):
                with raise_label_errors(f"{where}: line {number}"):
                    if line.strip():
                        yield dict(json.loads(line))
        else:
            yield from _csv_rows(text)


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
    if twice := [name for name in (*FILE_NAMES, *LABEL_NAMES) if names.count(name) > 1]:
        raise ValueError(f"two columns are named {twice[0]}")
    return rows


def decode_text(content: bytes, where: str) -> tuple[str, bool]:
    """Return text of UTF-8, 16 or 32, with or without a mark, else of Windows-1252, and whether it is the latter."""
    encoding: str = json.detect_encoding(content)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = content.decode(encoding, "replace")
    if "\0" in text[:1000]:
        raise DataError(f"{where}: it is not text; pass a table of labels, unpacked, as CSV or JSON")
    return text, encoding == "cp1252"
