"""Nests of tuples, lists and None that hold tensors, taken apart for a message and put together."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.source import dtype_name
from paragan.parallel.base.row_moves import Spec


def take_apart(value: Any) -> tuple[list[Tensor], Any]:
    """Return the tensors of a nest of tuples, lists and None, and its structure, as JSON."""
    if isinstance(value, Tensor):
        return [value], {"row": list(value.shape[1:]), "dtype": dtype_name(value.dtype)}
    if value is None:
        return [], None
    if not isinstance(value, (tuple, list)):
        problem = f"pipeline: a block returned a {type(value).__name__}"
        raise ConfigError(f"{problem}, which cannot be sent; return a tensor, or a tuple of tensors")
    tensors: list[Tensor] = []
    structures = []
    for member in value:
        tensors_of_member, structure = take_apart(member)
        tensors += tensors_of_member
        structures.append(structure)
    return tensors, structures


def take_rows_apart(value: Any, count: int | None = None) -> tuple[list[Tensor], Any]:
    """Return what `take_apart` does; raise `ConfigError` unless all tensors have `count` rows.

    count: None: any number, equal for all.
    """
    tensors, structure = take_apart(value)
    counts = {len(tensor) if tensor.dim() else None for tensor in tensors}
    if len(counts) != 1 or None in counts or (count is not None and counts != {count}):
        shapes = [tuple(tensor.shape) for tensor in tensors]
        samples = "" if count is None else f" for {count} samples"
        raise ConfigError(
            f"pipeline: a block takes and returns one row per sample, not shapes {shapes}{samples}; "
            "expand tensors without rows, or compute them inside a block"
        )
    return tensors, structure


def put_together(tensors: Sequence[Tensor], structure: Any) -> Any:
    """Return the nest of this structure; lists become tuples."""
    remaining = iter(tensors)

    def build(part: Any) -> Any:
        if part is None:
            return None
        return next(remaining) if isinstance(part, dict) else tuple(build(member) for member in part)

    return build(structure)


def specs_of_structure(structure: Any) -> list[Spec]:
    """Return row shape and dtype of the tensors of a structure."""
    if structure is None:
        return []
    if isinstance(structure, dict):
        return [(tuple(structure["row"]), getattr(torch, structure["dtype"]))]
    return list(chain.from_iterable(map(specs_of_structure, structure)))
