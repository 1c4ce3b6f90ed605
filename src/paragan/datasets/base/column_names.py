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

    A text array `columns` has the names of the tensors (N, K) with as many columns. Raises
    `DataError` if there are none.
    """
    tables = {name: held for name, held in data.items() if name != _KEY or not _is_text(held)}
    arrays = {name: _as_array(held) for name, held in tables.items()}
    names = {name: listed for name, held in tables.items() if (listed := _names_of(held))}
    if len(tables) < len(data):
        listed = tuple(map(str, np.asarray(data[_KEY])))
        fitting = [name for name, held in arrays.items() if tuple(getattr(held, "shape", ()))[1:] == (len(listed),)]
        if not fitting:
            raise DataError(f"data: {_KEY} has {len(listed)} names, and no tensor has as many columns; correct it")
        names |= dict.fromkeys(fitting, listed)
    return arrays, names


def _is_text(held: object) -> bool:
    return isinstance(held, np.ndarray) and held.ndim == 1 and held.dtype.kind in "US"


def _as_array(held: object) -> object:
    """Return a table as one array of numbers. Raises `DataError` for columns of text."""
    if isinstance(held, np.ndarray) and held.dtype.names:
        _check_no_text(name for name in held.dtype.names if held.dtype[name].kind not in "biuf")
        return structured_to_unstructured(held)
    if not isinstance(held, _DataFrame):
        return held
    table = np.asarray(held.to_numpy())
    if table.dtype.kind not in "OUS":
        return table
    columns = zip(_names_of(held), table.T, strict=True)
    _check_no_text(name for name, values in columns if not all(isinstance(value, Real) for value in values))
    return table.astype(np.float64)


def _check_no_text(names: Iterable[str]) -> None:
    for name in names:
        raise DataError(f"data: column {name!r} holds other values than numbers; encode it, such as one-hot")


def _names_of(held: object) -> tuple[str, ...]:
    if isinstance(held, _DataFrame):
        return tuple(map(str, held.columns))
    return (held.dtype.names or ()) if isinstance(held, np.ndarray) else ()
