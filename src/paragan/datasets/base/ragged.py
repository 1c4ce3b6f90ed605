"""Padding of tensors whose length differs from sample to sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.source import TensorSpec

MASK = "_mask"  # of `audio`: `audio_mask`


@dataclass(frozen=True)
class Padding:
    """Axes of samples that differ in length, by name, and the lengths to which they are padded.

    buckets: ascending; the first that fits is used, the longest row of the batch if none does.
    """

    axes: Mapping[str, int] = field(default_factory=dict)
    buckets: tuple[int, ...] = ()

    def including(self, ragged: Mapping[str, Sequence[Tensor]]) -> Padding:
        """Return a copy with the axes in which these rows differ."""
        for name, rows in ragged.items():
            if name in self.axes:
                _check_other_axes(name, rows, self.axes[name])
        axes = {name: _ragged_axis(name, rows) for name, rows in ragged.items() if name not in self.axes}
        return replace(self, axes={**self.axes, **axes})

    def checked(self, sample: Mapping[str, Tensor]) -> Padding:
        """Return a copy whose axes count from the front; `DataError` for one that is missing."""
        axes = {}
        for name, axis in self.axes.items():
            if name not in sample:
                names = ", ".join(sample)
                raise DataError(f"ragged: a sample has no tensor {name!r}; choose one of {names}")
            dim = sample[name].dim()
            if not -dim <= axis < dim:
                hint = f"choose one from 0 to {dim - 1}" if dim else "leave it out"
                raise DataError(
                    f"ragged: {name} has no axis {axis}: a sample has the shape {tuple(sample[name].shape)}; {hint}"
                )
            axes[name] = axis % dim
        return replace(self, axes=axes)

    def specs(self, sample: Mapping[str, Tensor], longest: Mapping[str, int] | None = None) -> dict[str, TensorSpec]:
        """Return the declaration of the tensors of a sample, with masks.

        longest: lengths that no sample exceeds, by name. If they fit into the only bucket, every
        row has its length; others are padded to any length, -1.
        """
        specs: dict[str, TensorSpec] = {}
        for name, row in sample.items():
            shape = [*row.shape]
            if name not in self.axes:
                specs[name] = TensorSpec(tuple(shape), row.dtype)
                continue
            max_length = (longest or {}).get(name)
            is_fixed = max_length is not None and len(self.buckets) == 1 and max_length <= self.buckets[0]
            length = self.buckets[0] if is_fixed else -1
            shape[self.axes[name]] = length
            specs[name] = TensorSpec(tuple(shape), row.dtype, self.axes[name])
            specs[f"{name}{MASK}"] = TensorSpec((length,), torch.bool)
        return specs

    def stacked(self, rows_of: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
        """Return rows stacked by name; those of different lengths with zeros after them, and masks."""
        tensors: dict[str, Tensor] = {}
        for name, rows in rows_of.items():
            if name in self.axes:
                tensors |= self._padded(name, rows, self.axes[name])
            else:
                tensors[name] = torch.stack(list(rows))
        return tensors

    def _padded(self, name: str, rows: Sequence[Tensor], axis: int) -> dict[str, Tensor]:
        lengths = torch.tensor([row.shape[axis] for row in rows])
        longest = int(lengths.max())
        length = next((bucket for bucket in self.buckets if bucket >= longest), longest)
        shape = [*rows[0].shape]
        shape[axis] = length
        batch = rows[0].new_zeros(len(rows), *shape)
        for place, row in zip(batch, rows, strict=True):
            place.narrow(axis, 0, row.shape[axis]).copy_(row)
        return {name: batch, f"{name}{MASK}": torch.arange(length) < lengths[:, None]}


def _check_other_axes(name: str, rows: Sequence[Tensor], axis: int) -> None:
    """Raise `DataError` for rows that differ in another axis than this one."""
    shapes = {tuple(row.shape) for row in rows}
    fixed = {(len(shape), shape[:axis] + shape[axis + 1 :]) for shape in shapes}
    if len(fixed) > 1:
        listed = ", ".join(str(shape) for shape in sorted(shapes)[:3])
        raise DataError(f"data: samples of {name!r} differ in another axis than {axis} ({listed}); pad them")


def _ragged_axis(name: str, rows: Sequence[Tensor]) -> int:
    """Return the one axis of a sample that differs; the first if none does. Raises `DataError`."""
    shapes = {tuple(row.shape) for row in rows}
    ranks = {len(shape) for shape in shapes}
    axes = [axis for axis in range(min(ranks)) if len({shape[axis] for shape in shapes}) > 1]
    if len(ranks) > 1 or len(axes) > 1 or ranks == {0}:
        listed = ", ".join(str(shape) for shape in sorted(shapes)[:3])
        raise DataError(f"data: samples of {name!r} differ in more than one axis ({listed}); pad them")
    return axes[0] if axes else 0
