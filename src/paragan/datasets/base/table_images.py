"""Encoded images in Parquet files and in folders of Hugging Face `datasets`; needs pyarrow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paragan.core.errors import DataError
from paragan.core.printable import counted, join_some
from paragan.datasets._class_numbers import number_labels
from paragan.datasets._encoded_images import EncodedImages
from paragan.datasets._folder_layout import arrange
from paragan.datasets._image_paths import hash_names
from paragan.datasets._label_tables import LABEL_NAMES
from paragan.datasets._split_names import split_folder

_BATCH_ROWS = 16
_MAX_HELD_BYTES = 128 << 20  # of all Parquet files, up to which row groups stay in memory once they are read
_IMAGE_NAMES = ("image", "img", "jpg", "png", "photo", "picture", "pixel_values")
_HF_MARKS = ("dataset_dict.json", "state.json")


@dataclass(frozen=True, kw_only=True)
class _Table:
    """One file. ends: number of rows up to the end of each row group of a Parquet file. num_bytes: unpacked.

    mapped: the table of an Arrow file, of which only the pages that are read take memory.
    """

    path: Path
    schema: Any
    ends: NDArray[np.int64]
    num_bytes: int = 0
    mapped: Any = None

    @property
    def num_rows(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0


class TableImages(EncodedImages):
    """Rows of Parquet or Arrow files in the order of file names.

    If some files are named `train` and some `validation` or `test` (file name or folder), these are the splits. Raises
    `DataError` without pyarrow, without a column of images, or for labels that are neither integers nor text.
    """

    def __init__(self, files: list[Path], where: str) -> None:
        _require_pyarrow(where)
        train, held_out = _splits(files, where)
        tables = {path: _open_table(path) for path in files}
        schema = tables[train[0]].schema
        self._column = _image_column(schema, where)
        label_column = next((name for name in LABEL_NAMES if name in schema.names), None)
        labels: list[object] = []
        if label_column is not None:
            labels = [label for path in train for label in _labels_of(tables[path], label_column)]
            labels_held_out = [label for path in held_out for label in _labels_of(tables[path], label_column)]
            labels += labels_held_out
            if all(label in (None, -1) for label in labels_held_out):
                held_out = []  # a test split without labels is no use for scores
        self._tables = [tables[path] for path in (*train, *held_out)]
        self._ends = np.cumsum([table.num_rows for table in self._tables])
        is_parquet = all(table.path.suffix == ".parquet" for table in self._tables)
        self._holds_groups = is_parquet and sum(table.num_bytes for table in self._tables) <= _MAX_HELD_BYTES
        self._groups: dict[tuple[int, int], Any] = {}  # images, by table and row group
        if held_out:
            self.num_train = int(self._ends[len(train) - 1])
        unread = [path for path in files if path not in {*train, *held_out}]
        self.ignored = {f"rows in {path.name}": tables[path].num_rows for path in unread}
        if label_column is not None:
            numbered = number_labels(
                labels[: self._ends[-1]],
                f"{where}: column {label_column!r}",
                lambda row: self.where(row).removeprefix(f"{where}: "),
                _stored_names(schema, label_column),
            )
            self.labels, self.class_names, self.notices = numbered
        if others := [name for name in schema.names if name not in (self._column, label_column)]:
            self.notices = (*self.notices, f"{where}: columns that are not read: {join_some(others)}")
        self.split_hashes = hash_names(
            b"%s %d" % (os.fsencode(table.path.name), row) for table in self._tables for row in range(table.num_rows)
        )
        if len(self) < 2:
            raise DataError(f"{where}: {counted(len(self), 'row')}, at least two are required; check the files")

    def read(self, rows: Sequence[int]) -> list[bytes]:
        if self._holds_groups:
            return [self._read_held(row) for row in rows]
        return [image for row in rows for image in self.scan(range(row, row + 1))]

    def _read_held(self, row: int) -> bytes:
        """Return an image. Its row group stays in memory: Parquet has no single rows, and each would read a group."""
        number = self._table_number(row)
        table = self._tables[number]
        table_row = row - (int(self._ends[number]) - table.num_rows)
        group = int(np.searchsorted(table.ends, table_row, side="right"))
        first = int(table.ends[group - 1]) if group else 0
        with _raise_data_errors(table.path):
            if (number, group) not in self._groups:  # two threads may read the same
                self._groups[number, group] = _read_group(table.path, self._column, group)
            return self._encoded(self._groups[number, group][table_row - first].as_py(), row)

    def scan(self, rows: range) -> Iterator[bytes]:
        """Yield the images of consecutive rows; a few are in memory at a time."""
        first = 0
        for table, end in zip(self._tables, map(int, self._ends), strict=True):
            if rows.start < end and rows.stop > first:
                table_rows = range(max(rows.start, first) - first, min(rows.stop, end) - first)
                with _raise_data_errors(table.path):
                    values = _column_values(table, self._column, table_rows)
                    for row, value in enumerate(values, start=first + table_rows.start):
                        yield self._encoded(value, row)
            first = end

    def where(self, row: int) -> str:
        number = self._table_number(row)
        table = self._tables[number]
        return f"{table.path}: row {row - self._ends[number] + table.num_rows}"

    def stamp(self, row: int) -> str:
        """Return row, and size and time of the file."""
        status = self._tables[self._table_number(row)].path.stat()
        return f"{row}/{status.st_size} {status.st_mtime_ns}"

    def _table_number(self, row: int) -> int:
        return int(np.searchsorted(self._ends, row, side="right"))

    def _encoded(self, value: Any, row: int) -> bytes:
        data = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise DataError(f"{self.where(row)}: column {self._column!r} holds no image bytes; embed the images")
        return data

    def _portable_stamps(self) -> Iterator[str]:
        for table in self._tables:
            yield f"{table.path.name} {table.path.stat().st_size}"


def table_files(root: Path) -> list[Path]:
    """Return the Parquet files of a folder or the Arrow files that `save_to_disk` wrote, sorted."""
    if root.is_file():
        return [root] if root.suffix == ".parquet" else []
    name = "data-*.arrow" if has_arrow_files(root) else "*.parquet"
    paths = [*root.glob(name), *root.glob(f"*/{name}")]
    return sorted(path for path in paths if path.is_file())  # no pipe, which would block


def has_arrow_files(root: Path) -> bool:
    """Return whether `save_to_disk` of `datasets` wrote this folder."""
    return any((root / mark).is_file() for mark in _HF_MARKS)


def _splits(files: list[Path], where: str) -> tuple[list[Path], list[Path]]:
    """Return the files of training and held-out samples, as `arrange` reads folders of their names."""
    names = {}  # `arrange` sees `train/000003` for a file of the split train
    for number, path in enumerate(files):
        names[os.fsencode(f"{split_folder(path, Path(where)) or 'other'}/{number:06}")] = path
    arranged = arrange(sorted(names), where)
    chosen = [names[name] for name in arranged.paths]
    return chosen[: arranged.num_train], [] if arranged.num_train is None else chosen[arranged.num_train :]


def _require_pyarrow(where: str) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise DataError(
            f"{where}: reading Parquet and Hugging Face files needs pyarrow; "
            "install it with `pip install 'paragan[parquet]'`"
        ) from None


def _open_table(path: Path) -> _Table:
    from pyarrow import parquet

    with _raise_data_errors(path):
        if path.suffix == ".arrow":
            arrow = _map_arrow(path)
            table = _Table(path=path, schema=arrow.schema, ends=np.array([len(arrow)]), mapped=arrow)
        else:
            metadata = parquet.read_metadata(path)
            groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
            ends = np.cumsum([group.num_rows for group in groups], dtype=np.int64)
            num_bytes = sum(group.total_byte_size for group in groups)
            schema = metadata.schema.to_arrow_schema()
            table = _Table(path=path, schema=schema, ends=ends, num_bytes=num_bytes)
        _ = table.schema.names  # read here, so that a name that is no Unicode is an error of this file
        return table


@contextmanager
def _raise_data_errors(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow into a `DataError` that names the file."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:  # the last: of names of columns
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: cannot be read ({reason}); download it again") from None


def _map_arrow(path: Path) -> Any:
    """Return the table in a file of an Arrow stream, mapped into memory."""
    import pyarrow

    return pyarrow.ipc.open_stream(pyarrow.memory_map(str(path))).read_all()


def _image_column(schema: Any, where: str) -> str:
    """Return the first column of encoded images with a usual name, else the first: bytes, or a struct of `datasets`."""
    from pyarrow import types

    columns = []
    for field in schema:
        inner = field.type
        if types.is_struct(inner) and inner.get_field_index("bytes") >= 0:
            inner = inner.field("bytes").type
        if types.is_binary(inner) or types.is_large_binary(inner):
            columns.append(str(field.name))
    if columns:
        return next((name for name in columns if name.lower() in _IMAGE_NAMES), columns[0])
    listed = ", ".join(schema.names)
    raise DataError(f"{where}: no column of encoded images among {listed}; expected bytes, or an Image of `datasets`")


def _column_values(table: _Table, column: str, rows: range) -> Iterator[Any]:
    """Yield the values of some rows of a column; a few rows are in memory at a time."""
    for values in _column_arrays(table, column, rows):
        values.validate(full=True)  # pyarrow reads whatever memory the numbers in a damaged file point to
        yield from values.to_pylist()


def _column_arrays(table: _Table, column: str, rows: range) -> Iterator[Any]:
    from pyarrow import parquet

    if table.mapped is not None:
        for batch in table.mapped.select([column]).slice(rows.start, len(rows)).to_batches(_BATCH_ROWS):
            yield batch.column(0)
        return
    first, last = np.searchsorted(table.ends, (rows.start, rows.stop - 1), side="right").tolist()  # row groups
    row = 0 if first == 0 else int(table.ends[first - 1])
    with parquet.ParquetFile(table.path, pre_buffer=False, buffer_size=1 << 20) as file:
        for batch in file.iter_batches(
            _BATCH_ROWS, row_groups=range(first, last + 1), columns=[column], use_threads=False
        ):
            if row >= rows.stop:
                return
            yield batch.column(0)[max(rows.start - row, 0) : max(rows.stop - row, 0)]
            row += len(batch)


def _read_group(path: Path, column: str, group: int) -> Any:
    """Return the values of a column in one row group."""
    from pyarrow import parquet

    with parquet.ParquetFile(path, pre_buffer=False) as file:
        values = file.read_row_group(group, columns=[column], use_threads=False).column(0).combine_chunks()
    values.validate(full=True)  # as in `_column_values`
    return values


def _labels_of(table: _Table, column: str) -> list[object]:
    """Return the values of a column; without it, None for each row."""
    if column not in table.schema.names:
        return [None] * table.num_rows
    with _raise_data_errors(table.path):
        return list(_column_values(table, column, range(table.num_rows)))


def _stored_names(schema: Any, column: str) -> tuple[str, ...]:
    """Return the class names that `datasets` stores in the schema; empty without."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(map(str, features[column]["names"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return ()
