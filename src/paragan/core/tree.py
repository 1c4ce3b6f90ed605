"""Tensors in nested values (tuples, lists, mappings, dataclasses), and rows that were padded to different lengths."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Return a copy of the nest with `function` applied to every tensor."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {name: map_tensors(function, value) for name, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tensors(function, value) for value in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree)]
        fields = {name: map_tensors(function, getattr(tree, name)) for name in names}
        return dataclasses.replace(tree, **fields)
    return tree


def pad_rows(batches: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors whose rows have one shape: shorter rows are followed by zeros, as by `datasets`."""
    shapes = {tensor.shape[1:] for tensor in batches}
    if len(shapes) == 1:
        return list(batches)
    whole = [max(sizes) for sizes in zip(*shapes, strict=True)]
    return [_padded(tensor, whole) for tensor in batches]


def concatenate_rows(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the rows of all parts, by name."""
    return {name: torch.cat(pad_rows([part[name] for part in parts])) for name in parts[0]}


def _padded(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    padded = tensor.new_zeros(len(tensor), *shape)
    padded[tuple(slice(0, size) for size in tensor.shape)] = tensor
    return padded
