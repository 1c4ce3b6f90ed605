"""Sources of samples that a program passes: tensors by name, a `Dataset` of torch, or an iterable."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from paragan.core import rng
from paragan.core.errors import DataError
from paragan.core.source import (
    Source,
    StreamedSource,
    TensorSpec,
    describe_tensors,
    dtype_name,
    rows_not_finite,
)
from paragan.datasets.base.column_names import split_names
from paragan.datasets.base.in_memory import compute_fingerprint
from paragan.datasets.base.ragged import Padding

Sample = Mapping[str, Any]

_HASHED = 64  # rows that identify tensors
_MAX_NOT_FINITE = 0.05  # of all rows
_DRAWS = threading.Lock()  # the global generators are those of the process


class TensorSource(Source):
    """A `Source` of tensors by name, in memory; their first axis is the samples.

    Arrays and tables (`_column_names`) are converted. A list of tensors has samples of different
    lengths, which are padded (`_ragged`). dtype: of the networks' weights, to which floating-point
    numbers are cast; None: none are.
    """

    def __init__(self, data: Mapping[str, Any], padding: Padding, dtype: torch.dtype | None = None) -> None:
        arrays, self.column_names = split_names(data)
        columns = _columns(arrays)
        examples = {
            name: held if isinstance(held, Tensor) else held[0] for name, held in columns.items() if _has_rows(held)
        }
        self.notices = _cast_notices(examples, dtype)
        tensors = {
            name: _cast(held, dtype) if isinstance(held, Tensor) else [_cast(row, dtype) for row in held]
            for name, held in columns.items()
        }
        counts = {name: len(held) if _has_rows(held) else 0 for name, held in tensors.items()}
        if not counts or len(set(counts.values())) > 1 or 0 in counts.values():
            lengths = ", ".join(f"{name} {count}" for name, count in counts.items()) or "no tensor"
            raise DataError(f"data: tensors need one first axis, the samples; found {lengths}")
        self._held = {
            name: held.detach().cpu()
            for name, held in tensors.items()
            if isinstance(held, Tensor) and name not in padding.axes
        }
        others = (name for name in tensors if name not in self._held)
        self._ragged = {name: list(tensors[name]) for name in others}
        first = {name: held[0] for name, held in tensors.items()}
        self._padding = padding.checked(first).including(self._ragged)
        self._count = next(iter(counts.values()))
        for name, held in tensors.items():
            self.notices += _rows_not_finite(name, held, self.column_names.get(name, ()))
        axes = self._padding.axes
        longest = {name: max(row.shape[axes[name]] for row in held) for name, held in self._ragged.items()}
        self.tensors = self._padding.specs(first, longest)
        rows = np.linspace(0, self._count - 1, min(self._count, _HASHED)).astype(np.int64)
        content = [held.contiguous().view(-1).view(torch.uint8).numpy().tobytes() for held in self.fetch(rows).values()]
        self.fingerprint = compute_fingerprint(self._count, self.tensors, *content)

    def __len__(self) -> int:
        return self._count

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return copies of rows. indices: int64 array (B,) in [0, N)."""
        rows = torch.as_tensor(indices, dtype=torch.int64)
        tensors = {name: held.index_select(0, rows) for name, held in self._held.items()}
        ragged = {name: [held[row] for row in rows.tolist()] for name, held in self._ragged.items()}
        return {**tensors, **self._padding.stacked(ragged)}

    def row_labels(self) -> NDArray[np.int64] | None:
        """Return the tensor `label`, int64 (N,) or (N, 1); None without one."""
        label_N = self._held.get("label")
        is_known = label_N is not None and label_N.dtype == torch.int64 and label_N.numel() == len(self)
        return label_N.flatten().numpy() if label_N is not None and is_known else None


class DatasetSource(Source):
    """A `Source` of a map-style `Dataset` whose samples are mappings of tensors, arrays or numbers.

    What a sample draws from the generators of torch, numpy and `random` is seeded by its place in
    the stream of batches, so a resumed run, or one on other ranks, draws the same. dtype: as of
    `TensorSource`.
    """

    def __init__(self, dataset: Dataset[Any], padding: Padding, dtype: torch.dtype | None = None) -> None:
        self._dataset = dataset
        self._dtype = dtype
        if not len(self):
            raise DataError(f"data: {type(dataset).__name__} has no samples: its length is 0; pass at least one sample")
        first, self.notices = _first_sample(self._drawn(0, 0, 0), dtype)
        self._padding = padding.checked(first)
        self.tensors = self._padding.specs(first)
        self.fingerprint = compute_fingerprint(_name_of(type(dataset)), len(self), self.tensors)

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return samples, stacked. Raises `DataError` for one that differs from the first."""
        where = indices if places is None else places
        drawn = [(int(row), self._drawn(int(row), seed, int(place))) for row, place in zip(indices, where, strict=True)]
        return _stacked(drawn, self.tensors, self._padding, self._dtype)

    def _drawn(self, row: int, seed: int, place: int) -> Any:
        with _DRAWS, rng.seeded_globally(rng.key(seed, "dataset", place)):
            return self._dataset[row]


class IterableSource(StreamedSource):
    """A `Source` whose samples come in the order of an iterable, which is made for each epoch.

    dtype: as of `TensorSource`.
    """

    def __init__(
        self, make: Callable[[int], Iterable[Sample]], padding: Padding, dtype: torch.dtype | None = None
    ) -> None:
        self._make = make
        self._dtype = dtype
        first = next(iter(make(0)), None)
        if first is None:
            raise DataError("data: the iterable of epoch 0 has no samples")
        tensors, self.notices = _first_sample(first, dtype)
        self._padding = padding.checked(tensors)
        self.tensors = self._padding.specs(tensors)
        self.fingerprint = compute_fingerprint(_name_of(make), self.tensors)

    def __len__(self) -> int:
        return 0

    def samples(self, epoch: int) -> Iterator[Any]:
        """Return the samples of an epoch."""
        return iter(self._make(epoch))

    def stacked(self, samples: Sequence[Any]) -> dict[str, Tensor]:
        """Return samples, stacked. Raises `DataError` for one that differs from the first."""
        return _stacked(list(enumerate(samples)), self.tensors, self._padding, self._dtype)

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return as many samples from the begin of epoch 0, repeated if there are fewer."""
        samples = list(islice(self.samples(0), len(indices)))
        return self.stacked([samples[number % len(samples)] for number in range(len(indices))])


def _columns(data: Mapping[str, Any]) -> dict[str, Tensor | list[Tensor]]:
    """Return all samples by name: a tensor, or a list of tensors that may differ in length."""
    _check_names(data)
    columns: dict[str, Tensor | list[Tensor]] = {}
    for name, held in data.items():
        if not isinstance(held, (list, tuple)):
            columns[name] = _as_tensor(held, name, "the mapping")
            continue
        rows = [_as_tensor(row, name, f"sample {number}") for number, row in enumerate(held)]
        has_numbers = bool(rows) and not any(row.dim() for row in rows)
        columns[name] = torch.stack(rows) if has_numbers else rows
    return columns


def _has_rows(held: Tensor | list[Tensor]) -> bool:
    return held.dim() > 0 if isinstance(held, Tensor) else bool(held)


def _cast(value: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Cast floating-point numbers, such as float64 of numpy and pandas, to the format of the networks' weights."""
    return value if dtype is None or not value.is_floating_point() else value.to(dtype)


def _cast_notices(examples: Mapping[str, Tensor], dtype: torch.dtype | None) -> tuple[str, ...]:
    """Return a line about the tensors that are cast, if there are some."""
    by_kind: dict[str, list[str]] = {}
    for name, value in examples.items():
        if _cast(value, dtype).dtype != value.dtype:
            by_kind.setdefault(dtype_name(value.dtype), []).append(name)
    return tuple(
        f"data: {', '.join(names)} of {kind} is cast to {dtype_name(dtype)}, the format of the weights"
        for kind, names in by_kind.items()
    )


def _first_sample(sample: Any, dtype: torch.dtype | None) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the tensors of a first sample, and which are cast."""
    stored = _sample_tensors(sample, 0)
    tensors = {name: _cast(value, dtype) for name, value in stored.items()}
    return tensors, _cast_notices(stored, dtype)


def _rows_not_finite(name: str, held: Tensor | list[Tensor], columns: Sequence[str]) -> tuple[str, ...]:
    """Return a line about samples with NaN or infinity, whose updates are skipped. Raises `DataError` for many."""
    if isinstance(held, Tensor):
        rows = rows_not_finite(held)
    else:
        rows = [row for row, value in enumerate(held) if rows_not_finite(value[None])]
    if not rows:
        return ()
    some = ", ".join(map(str, rows[:3])) + (", …" if len(rows) > 3 else "")
    wrong = [column for number, column in enumerate(columns) if not held[rows[0]][number].isfinite()]
    some += f", column {wrong[0]!r}" if wrong else ""
    text = f"data: {name} is not finite in {len(rows):,} of {len(held):,} samples, number {some}"
    cure = "leave them out or replace the values (an empty cell of a table is read as NaN)"
    if len(rows) > _MAX_NOT_FINITE * len(held):  # few batches would be without one
        raise DataError(f"{text}; {cure}")
    return (f"{text}: updates on them are skipped; {cure}",)


def _stacked(
    samples: list[tuple[int, Any]], declared: Mapping[str, TensorSpec], padding: Padding, dtype: torch.dtype | None
) -> dict[str, Tensor]:
    """Stack samples, each with its number; pad ragged ones. Raises `DataError` for other tensors."""
    rows: dict[str, list[Tensor]] = {}
    for number, sample in samples:
        tensors = {name: _cast(value, dtype) for name, value in _sample_tensors(sample, number).items()}
        specs = padding.specs(tensors)
        if specs != declared:
            raise DataError(
                f"data: sample {number} has {describe_tensors(specs)}, the first {describe_tensors(declared)}; "
                "name an axis that differs: ragged={NAME: AXIS}"
            )
        for name, tensor in tensors.items():
            rows.setdefault(name, []).append(tensor)
    return padding.stacked(rows)


def _name_of(held: Any) -> str:
    return f"{getattr(held, '__module__', '')}.{getattr(held, '__qualname__', type(held).__qualname__)}"


def _as_tensor(value: Any, name: str, owner: str) -> Tensor:
    """Return a value as a tensor. Raises `DataError` for one that has no numbers."""
    is_read_only = isinstance(value, np.ndarray) and not value.flags.writeable
    if isinstance(value, np.ndarray) and not value.dtype.isnative:  # big-endian, as in FITS and old formats
        value = value.astype(value.dtype.newbyteorder("="))
    if isinstance(value, np.ndarray) and _is_refused_by_torch(value):
        value = value.copy()
    try:
        with _without_warning() if is_read_only else nullcontext():
            return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(
            f"data: {owner} has {name!r} of type {type(value).__name__}; "
            "pass a tensor, an array of numbers or a number, or leave it out"
        ) from None


def _is_refused_by_torch(array: NDArray[np.generic]) -> bool:
    """Return whether an array of numbers is a view that torch cannot share: reversed, or a column of a table."""
    if array.dtype.kind not in "biufc":  # text of no character has an item size of 0
        return False
    return not array.flags.aligned or any(step < 0 or step % array.itemsize for step in array.strides)


@contextmanager
def _without_warning() -> Iterator[None]:
    """Ignore that torch cannot protect an array; samples are copied before they change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        yield


def _sample_tensors(sample: Any, row: int) -> dict[str, Tensor]:
    """Return the tensors of a sample by name. Raises `DataError` for another sample."""
    if not isinstance(sample, Mapping) or not sample:
        raise DataError(
            f"data: sample {row} is a {type(sample).__name__}; "
            "return a mapping of names to tensors, such as {'image': image}"
        )
    _check_names(sample)
    return {name: _as_tensor(value, name, f"sample {row}") for name, value in sample.items()}


def _check_names(sample: Mapping[Any, Any]) -> None:
    """Raise `DataError` for a name that is no text."""
    for name in sample:
        if not isinstance(name, str):
            raise DataError(f"data: the name {name!r} is no text; use one such as 'audio'")
