"""Source of tensors by name, in memory, as a program passes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.not_finite import CAUSES, rows_not_finite
from paragan.core.printable import counted, join_some
from paragan.core.source import Source, dtype_name
from paragan.datasets.base.column_names import split_names
from paragan.datasets.base.in_memory import compute_fingerprint
from paragan.datasets.base.ragged import Padding
from paragan.datasets.base.samples import as_tensor, cast, cast_notices, check_names, flat_label

_HASHED = 64  # rows that identify tensors
MAX_NOT_FINITE = 0.05  # of all training rows


class TensorSource(Source):
    """A `Source` of tensors by name, in memory; their first axis is the samples.

    Arrays and tables (`column_names`) are converted. A list of tensors has samples of different lengths, which are
    padded (`ragged`). dtype: of the networks' weights, to which floating-point numbers are cast; None: none are.
    max_not_finite: share of samples with NaN or infinity; more of them raise `DataError`.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        padding: Padding,
        dtype: torch.dtype | None = None,
        max_not_finite: float = MAX_NOT_FINITE,
    ) -> None:
        arrays, self.column_names = split_names(data)
        columns = _columns(arrays)
        self._count = _num_samples(columns)
        # numbers as stored, and after the cast, in which large ones may be infinite
        self.notices = cast_notices({name: column[0] for name, column in columns.items()}, dtype)
        self._stacked: dict[str, Tensor] = {}
        self._ragged: dict[str, list[Tensor]] = {}
        for name, column in columns.items():
            if isinstance(column, Tensor) and name not in padding.axes:
                self._stacked[name] = cast(flat_label(column, name, 1), dtype).detach().cpu()
            else:
                self._ragged[name] = [cast(row, dtype) for row in column]
        samples: Mapping[str, Tensor | list[Tensor]] = {**self._stacked, **self._ragged}
        for name in columns:
            titles = self.column_names.get(name, ())
            self.notices += _notice_not_finite(name, samples[name], columns[name], titles, max_not_finite)
        self.notices_not_finite = True  # so that the training loop need not
        first = {name: samples[name][0] for name in columns}
        self._padding = padding.checked(first).including(self._ragged)
        axes = self._padding.axes
        longest = {name: max(row.shape[axes[name]] for row in rows) for name, rows in self._ragged.items()}
        self.tensors = self._padding.specs(first, longest)
        hashed_rows = np.linspace(0, self._count - 1, min(self._count, _HASHED)).astype(np.int64)
        tensors = [tensor.contiguous().view(-1) for tensor in self.fetch(hashed_rows).values()]
        content = [tensor.view(torch.uint8).numpy().tobytes() for tensor in tensors]
        self.fingerprint = compute_fingerprint(self._count, self.tensors, *content)

    def __len__(self) -> int:
        return self._count

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return copies of rows. indices: int64 array (B,) in [0, N)."""
        rows = torch.as_tensor(indices, dtype=torch.int64)
        tensors = {name: values.index_select(0, rows) for name, values in self._stacked.items()}
        ragged = {name: [values[row] for row in rows.tolist()] for name, values in self._ragged.items()}
        return {**tensors, **self._padding.stacked(ragged)}

    def row_labels(self) -> NDArray[np.int64] | None:
        """Return the tensor `label` of whole numbers (N,) as int64; None without one."""
        label_N = self._stacked.get("label")
        if label_N is None or label_N.is_floating_point() or label_N.is_complex() or label_N.dim() != 1:
            return None
        return label_N.long().numpy()


def _columns(data: Mapping[str, Any]) -> dict[str, Tensor | list[Tensor]]:
    """Return all samples by name: a tensor, or a list of tensors that may differ in length."""
    check_names(data)
    columns: dict[str, Tensor | list[Tensor]] = {}
    for name, values in data.items():
        if not isinstance(values, (list, tuple)):
            columns[name] = as_tensor(values, name, "data: the mapping")
            continue
        rows = [as_tensor(row, name, f"data: sample {number}") for number, row in enumerate(values)]
        has_numbers = bool(rows) and not any(row.dim() for row in rows)
        columns[name] = torch.stack(rows) if has_numbers else rows
    return columns


def _num_samples(columns: Mapping[str, Tensor | list[Tensor]]) -> int:
    """Return the length of all columns. Raises `DataError` if they differ or there are no samples."""
    counts = {name: 0 if isinstance(rows, Tensor) and not rows.dim() else len(rows) for name, rows in columns.items()}
    lengths = ", ".join(f"{name} {count}" for name, count in counts.items()) or "no tensor"
    if len(set(counts.values())) > 1:
        raise DataError(f"data: tensors need one first axis, the samples; found {lengths}")
    if not any(counts.values()):
        raise DataError(f"data: there are no samples ({lengths}); pass tensors of at least one, along their first axis")
    return max(counts.values())


def _notice_not_finite(
    name: str,
    samples: Tensor | list[Tensor],
    before_cast: Tensor | list[Tensor],
    columns: Sequence[str],
    max_share: float,
) -> tuple[str, ...]:
    """Return a line about samples that are not finite. Raises `DataError` for many."""
    if isinstance(samples, Tensor):
        rows = rows_not_finite(samples)
    else:
        rows = [row for row, sample in enumerate(samples) if rows_not_finite(sample[None])]
    if not rows:
        return ()
    first = samples[rows[0]]
    place = tuple((~first.isfinite()).nonzero()[0].tolist())  # empty: a sample is one number
    where = f", at {list(place)}" if place else ""
    if columns:
        where = f", column {columns[place[0]]!r}"
    value = before_cast[rows[0]][place]
    what, cure = "is not finite", f"leave them out or replace the values {CAUSES}"
    if value.isfinite():
        what = f"has {value.item():.3g}, beyond {dtype_name(first.dtype)},"
        cure = "divide it by its largest number, or leave them out"
    text = (
        f"data: {name} {what} in {len(rows):,} of {counted(len(samples), 'sample')}, number {join_some(rows, 3)}{where}"
    )
    if len(rows) > max_share * len(samples):  # few batches would be without one
        raise DataError(f"{text}; {cure}")
    return (f"{text}: updates on them are skipped; {cure}",)
