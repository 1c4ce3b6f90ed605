"""Samples of a program as tensors by name, and batches of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.source import TensorSpec, describe_tensors, dtype_name
from paragan.datasets.base.ragged import Padding

_MODES = ("L", "RGB", "RGBA", "I", "I;16", "F")


@dataclass(frozen=True, kw_only=True)
class SampleForm:
    """How samples become tensors by name: mappings, tuples, or one value each.

    dtype: of the networks' weights, to which floating-point numbers are cast; None: none are. names:
    of the values of a tuple, in order; further values are left out. collate: makes a batch of a list
    of samples; None: they are stacked, and padded. left_out: names of values without numbers, such as text.
    argument: of `Trainer` that has the samples, in messages.
    """

    padding: Padding = field(default_factory=Padding)
    dtype: torch.dtype | None = None
    names: tuple[str, ...] = ()
    collate: Callable[[list[Any]], Any] | None = None
    left_out: frozenset[str] = frozenset()
    argument: str = "data"

    def of_first(self, sample: Any) -> tuple[SampleForm, dict[str, TensorSpec], tuple[str, ...]]:
        """Return the form of all samples, the declaration of their tensors, and what is cast or left out."""
        notices: tuple[str, ...] = ()
        batch = sample if self.collate is None else self.collate([sample])
        if isinstance(batch, tuple | list) and len(batch) > len(self.names) > 0:
            used = ", ".join(self.names)
            notices += (f"data: a sample has {len(batch)} values, and only the first are used: {used}",)
        named = self._named(batch, 0)
        left_out = [name for name, value in named.items() if isinstance(batch, Mapping) and not _has_numbers(value)]
        if len(left_out) == len(named):
            left_out = []  # `as_tensor` refuses the first by its name
        if left_out:
            notices += (f"data: {', '.join(left_out)} has no numbers and is left out",)
        owner = f"{self.argument}: sample 0"
        stored = {name: as_tensor(value, name, owner) for name, value in named.items() if name not in left_out}
        if self.collate is not None:  # which made a batch of the one sample
            stored = {name: value[0] for name, value in stored.items()}
        first = {name: cast(flat_label(value, name, 0), self.dtype) for name, value in stored.items()}
        form = replace(self, padding=self.padding.checked(first), left_out=frozenset(left_out))
        specs = form.padding.specs(first)
        if self.collate is not None:  # which pads, so that this form does not
            specs = {name: replace(specs[name], padded_axis=None) for name in first}
        return form, specs, (*notices, *cast_notices(stored, self.dtype))

    def stacked(self, samples: list[tuple[int, Any]], declared: Mapping[str, TensorSpec]) -> dict[str, Tensor]:
        """Make a batch of samples, each with its number. Raises `DataError` for other tensors than declared."""
        if self.collate is not None:
            return self._tensors(self.collate([sample for _, sample in samples]), samples[0][0])
        rows: dict[str, list[Tensor]] = {}
        for number, sample in samples:
            tensors = self._tensors(sample, number)
            specs = self.padding.specs(tensors)
            if specs != declared:
                raise DataError(
                    f"{self.argument}: sample {number} has {describe_tensors(specs)}, the first "
                    f"{describe_tensors(declared)}; resize images, or name the axis that differs: ragged={{NAME: AXIS}}"
                )
            for name, tensor in tensors.items():
                rows.setdefault(name, []).append(tensor)
        return self.padding.stacked(rows)

    def _tensors(self, sample: Any, number: int) -> dict[str, Tensor]:
        num_axes = 0 if self.collate is None else 1  # before those of a sample
        named = self._named(sample, number)
        values = {name: as_tensor(value, name, f"{self.argument}: sample {number}") for name, value in named.items()}
        return {name: cast(flat_label(value, name, num_axes), self.dtype) for name, value in values.items()}

    def _named(self, sample: Any, number: int) -> dict[str, Any]:
        """Return the values of a sample by name. Raises `DataError` for a sample without names."""
        if isinstance(sample, Mapping) and sample:
            check_names(sample)
            return {name: value for name, value in sample.items() if name not in self.left_out}
        if self.names and not isinstance(sample, Mapping | str | bytes):
            values = sample if isinstance(sample, tuple | list) else (sample,)
            return dict(zip(self.names, values, strict=False))
        raise DataError(
            f"{self.argument}: sample {number} is a {type(sample).__name__}; return a mapping of names to tensors, "
            "such as {'image': image}, or a tuple of them"
        )


def flat_label(value: Tensor, name: str, num_axes: int) -> Tensor:
    """Return class labels (N, 1), as some collections have them, as (N,). num_axes: before those of a sample."""
    is_one_number = name == "label" and value.dim() == num_axes + 1 and value.shape[-1] == 1
    return value.squeeze(-1) if is_one_number and not value.is_floating_point() else value


def cast(value: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Cast numbers that are not whole, such as float64 of numpy and pandas, to the format of the networks' weights."""
    if dtype is not None and value.is_complex():
        return value.to(dtype.to_complex())
    return value if dtype is None or not value.is_floating_point() else value.to(dtype)


def cast_notices(examples: Mapping[str, Tensor], dtype: torch.dtype | None) -> tuple[str, ...]:
    """Return a line about the tensors of a sample that are cast, if there are some, and about a label that is flat."""
    by_kind: dict[tuple[str, str], list[str]] = {}
    for name, value in examples.items():
        if (kind := cast(value, dtype).dtype) != value.dtype:
            by_kind.setdefault((dtype_name(value.dtype), dtype_name(kind)), []).append(name)
    casts = tuple(
        f"data: {', '.join(names)} of {before} is cast to {after}, the format of the weights"
        for (before, after), names in by_kind.items()
    )
    is_flattened = any(flat_label(value, name, 0).shape != value.shape for name, value in examples.items())
    return (*casts, "data: label of shape (N, 1) is passed to networks as (N,)") if is_flattened else casts


def as_tensor(value: Any, name: str, owner: str) -> Tensor:
    """Return numbers, or a picture of Pillow as (C, H, W), as a tensor. Raises `DataError` for anything else."""
    if isinstance(value, Image.Image):
        value = _pixels(value)
    if isinstance(value, np.ma.MaskedArray):
        value = _unmasked(value, name, owner)
    is_read_only = isinstance(value, np.ndarray) and not value.flags.writeable
    if isinstance(value, np.ndarray) and not value.dtype.isnative:  # big-endian, as in FITS and old formats
        value = value.astype(value.dtype.newbyteorder("="))
    if isinstance(value, np.ndarray) and _is_refused_by_torch(value):
        value = value.copy()
    try:
        with _without_warning() if is_read_only else nullcontext():
            return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        kind = f"{type(value).__name__}{f' of {value.dtype}' if isinstance(value, np.ndarray) else ''}"
        raise DataError(
            f"{owner} has {name!r} of type {kind}; pass a tensor, an array of numbers or a number, or leave it out"
        ) from None


def _unmasked(array: NDArray[np.generic], name: str, owner: str) -> NDArray[np.generic]:
    """Return a masked array with NaN where it is masked, as an empty cell; `DataError` for one of whole numbers."""
    if np.ma.is_masked(array) and array.dtype.kind not in "fc":
        raise DataError(f"{owner} has {name!r} with masked values of {array.dtype}; pass NAME.filled(NUMBER)")
    return np.ma.filled(array, np.nan) if np.ma.is_masked(array) else np.ma.getdata(array)


def _has_numbers(value: Any) -> bool:
    try:
        as_tensor(value, name="", owner="")
    except DataError:
        return False
    return True


def _pixels(image: Image.Image) -> NDArray[np.generic]:
    """Return the pixels of a picture, (C, H, W): uint8, uint16 or the numbers of its mode."""
    if image.mode == "1":
        image = image.convert("L")
    elif image.mode not in _MODES:
        image = image.convert("RGBA" if "A" in image.getbands() else "RGB")
    pixels = np.array(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


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


def check_names(sample: Mapping[Any, Any]) -> None:
    """Raise `DataError` for a name that is no text."""
    for name in sample:
        if not isinstance(name, str):
            raise DataError(f"data: the name {name!r} is not a string; use one such as 'audio'")
