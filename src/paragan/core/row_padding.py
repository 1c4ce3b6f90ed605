"""Rows of equal shape, from batches whose samples were padded to different lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


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
