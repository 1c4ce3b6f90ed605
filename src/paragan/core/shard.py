"""Tensors that are sharded over ranks, this rank's shard, and the tensors that an optimiser steps."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

from paragan.core.layout import TensorLayout

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(tensor: object) -> TypeGuard[DTensor]:
    """Return whether a tensor is sharded over ranks."""
    # Only what has imported this module of torch can have made one; the import takes 0.7 s, for sympy.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_shard(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a sharded tensor, a view; any other tensor unchanged."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def layout_of(tensor: Tensor) -> TensorLayout:
    """Return this rank's layout of a tensor, sharded on any mesh or whole."""
    if not is_sharded(tensor):
        return TensorLayout.whole(tensor.shape)
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    length, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return TensorLayout(tuple(tensor.shape), tuple(offset), tuple(length))


@torch.no_grad()
def copy_full(target: Tensor, full: Tensor) -> None:
    """Copy a full tensor, equal on every rank, into a sharded or full one; no communication."""
    local_shard(target).copy_(layout_of(target).cut(full))


def gather_full(tensor: Tensor) -> Tensor:
    """Return the full tensor, on every rank. Collective: every rank must call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def optimizer_weights(optimizer: Any) -> dict[str, Tensor]:
    """Return the tensors that an optimiser steps: parameters, float32 copies, or local shards.

    Their order is that of its groups, which must have `param_names`, and of torch's state.
    """
    weights: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        weights |= zip(group["param_names"], group["params"], strict=True)
    return weights
