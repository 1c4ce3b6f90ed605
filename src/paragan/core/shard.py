"""Tensors that are sharded over ranks, and this rank's shard of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def local_shard(tensor: Tensor) -> Tensor:
    """This rank's shard of a sharded tensor, sharing its memory; any other tensor unchanged."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def copy_full(target: Tensor, full: Tensor) -> None:
    """Copy a full tensor, equal on every rank, into a sharded or a full one. Needs no communication."""
    if isinstance(target, DTensor):
        full = full.to(target.device_mesh.device_type, target.dtype)
        full = distribute_tensor(full, target.device_mesh, target.placements, src_data_rank=None).to_local()
    local_shard(target).copy_(full)


def gather_full(tensor: Tensor) -> Tensor:
    """The full tensor, on every rank. Collective: every rank must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
