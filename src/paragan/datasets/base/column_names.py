"""Tables as arrays and the names of their columns: DataFrames, structured arrays, arrays next to a list of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.lib.recfunctions import structured_to_unstructured

from paragan.core.errors import DataError

_KEY = "columns"  # of names next to an array, as in an .npz file


@runtime_checkable
class _DataFrame(Protocol):
    """A table of pandas or polars."""

    columns: Iterable[object]

    def to_numpy(self) -> object: ...


def is_table(data: object) -> bool:
    """Return whether this is one table: a DataFrame, or an array of NumPy whose columns have names (a CSV file)."""
    return isinstance(data, _DataFrame) or (isinstance(data, np.ndarray) and data.dtype.names is not None)


def split_names(data: Mapping[str, object]) -> tuple[dict[str, object], dict[str, tuple[str, ...]]]:
    """Return tensors by name without the names of columns, and these, by tensor.

    A text array `columns` has the names of tensors (N, K) with as many columns; `DataError` if there are none.
    """
    has_list = isinstance(text := data.get(_KEY), np.ndarray) and text.ndim == 1 and text.dtype.kind in "US"
    tables = {name: table for name, table in data.items() if not (has_list and name == _KEY)}
    arrays = {name: _as_array(table) for name, table in tables.items()}
    names = {name: columns for name, table in tables.items() if (columns := _names_of(table))}
    if has_list:
        listed = tuple(map(str, np.asarray(text)))
        fitting = [name for name, array in arrays.items() if tuple(getattr(array, "shape", ()))[1:] == (len(listed),)]
        if not fitting:
            raise DataError(f"data: {_KEY} has {len(listed)} names, and no tensor has as many columns; correct it")
        names |= dict.fromkeys(fitting, listed)
    return arrays, names


def _as_array(table: object) -> object:
    """Return a table as one array of numbers, other values unchanged. Raises `DataError` for columns of text."""
    if isinstance(table, np.ndarray) and table.dtype.names:
        _check_no_text(name for name in table.dtype.names if table.dtype[name].kind not in "biuf")
        return structured_to_unstructured(table)
    if not isinstance(table, _DataFrame):
        return table
    array = np.asarray(table.to_numpy())
    if array.dtype.kind not in "OUS":
        return array
    columns = zip(_names_of(table), array.T, strict=True)
    _check_no_text(name for name, values in columns if not all(isinstance(value, Real) for value in values))
    return array.astype(np.float64)


def _check_no_text(names: Iterable[str]) -> None:
    for name in names:
        raise DataError(f"data: column {name!r} holds other values than numbers; encode it, such as one-hot")


def _names_of(table: object) -> tuple[str, ...]:
    if isinstance(table, _DataFrame):
        return tuple(map(str, table.columns))
    return (table.dtype.names or ()) if isinstance(table, np.ndarray) else ()
