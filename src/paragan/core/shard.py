"""Tensors that are sharded over ranks, and this rank's shard."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from paragan.core.layout import TensorLayout


def local_shard(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a sharded tensor, a view; any other tensor unchanged."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def layout_of(tensor: Tensor) -> TensorLayout:
    """Return this rank's layout of a tensor, sharded on any mesh or whole."""
    if not isinstance(tensor, DTensor):
        return TensorLayout.whole(tensor.shape)
    length, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return TensorLayout(tuple(tensor.shape), tuple(offset), tuple(length))


@torch.no_grad()
def copy_full(target: Tensor, full: Tensor) -> None:
    """Copy a full tensor, equal on every rank, into a sharded or full one; no communication."""
    local_shard(target).copy_(layout_of(target).cut(full))


def gather_full(tensor: Tensor) -> Tensor:
    """Return the full tensor, on every rank. Collective: every rank must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
