"""Tensors from what a program has in a sample: tensors, arrays or numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paragan.core.errors import DataError


def as_tensor(value: Any, name: str, owner: str) -> Tensor:
    """Return a value as a tensor. Raises `DataError` for one that has no numbers."""
    is_read_only = isinstance(value, np.ndarray) and not value.flags.writeable
    try:
        with _without_warning() if is_read_only else nullcontext():
            return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        found = f"{owner} has {name!r} of type {type(value).__name__}"
        hint = "pass a tensor, an array of numbers or a number, or leave it out"
        raise DataError(f"data: {found}; {hint}") from None


@contextmanager
def _without_warning() -> Iterator[None]:
    """Ignore that torch cannot protect an array; samples are copied before they change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        yield


def sample_tensors(sample: Any, row: int) -> dict[str, Tensor]:
    """Return the tensors of a sample by name. Raises `DataError` for another sample."""
    if not isinstance(sample, Mapping) or not sample:
        problem = f"data: sample {row} is a {type(sample).__name__}"
        raise DataError(f"{problem}; return a mapping of names to tensors")
    refuse_other_names(sample)
    return {name: as_tensor(value, name, f"sample {row}") for name, value in sample.items()}


def refuse_other_names(sample: Mapping[Any, Any]) -> None:
    """Raise `DataError` for a name that is no text."""
    for name in sample:
        if not isinstance(name, str):
            raise DataError(f"data: the name {name!r} is no text; use one such as 'audio'")
