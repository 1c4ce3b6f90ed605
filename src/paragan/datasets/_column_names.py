"""Tables as arrays and the names of their columns: DataFrames, structured arrays, arrays next to a list of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.lib.recfunctions import structured_to_unstructured

from paragan.core.errors import DataError

_KEY = "columns"  # of names next to an array, as in an .npz file


@runtime_checkable
class _DataFrame(Protocol):
    """A table of pandas or polars."""

    columns: Any

    def to_numpy(self) -> Any: ...


def is_table(data: object) -> bool:
    """Return whether this is one table: a DataFrame, or an array of NumPy whose columns have names (a CSV file)."""
    return isinstance(data, _DataFrame) or (isinstance(data, np.ndarray) and data.dtype.names is not None)


def split_names(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Return tensors by name without the names of columns, and these, by tensor.

    A text array `columns` has the names of the tensors (N, K) with as many columns. Raises
    `DataError` if there are none.
    """
    tables = {name: held for name, held in data.items() if name != _KEY or not _is_text(held)}
    arrays = {name: _as_array(held) for name, held in tables.items()}
    names = {name: _names_of(held) for name, held in tables.items() if is_table(held)}
    if len(tables) < len(data):
        listed = tuple(map(str, np.asarray(data[_KEY])))
        fitting = [name for name, held in arrays.items() if np.ndim(held) == 2 and np.shape(held)[1] == len(listed)]
        if not fitting:
            raise DataError(f"data: {_KEY} has {len(listed)} names, and no tensor has as many columns; correct it")
        names |= dict.fromkeys(fitting, listed)
    return arrays, names


def _is_text(held: Any) -> bool:
    return np.ndim(held) == 1 and np.asarray(held).dtype.kind in "US"


def _as_array(held: Any) -> Any:
    if isinstance(held, _DataFrame):
        return held.to_numpy()
    return structured_to_unstructured(held) if is_table(held) else held


def _names_of(table: Any) -> tuple[str, ...]:
    return tuple(map(str, table.columns if isinstance(table, _DataFrame) else table.dtype.names))
