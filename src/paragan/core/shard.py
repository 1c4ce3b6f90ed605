"""Tensors that are cut over ranks, and this rank's piece of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def local(tensor: Tensor) -> Tensor:
    """This rank's piece of a cut tensor, sharing its memory; any other tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def put(into: Tensor, whole: Tensor) -> None:
    """Write a whole tensor's values, of which every rank has the same, into a cut or a whole one. Nothing travels."""
    if isinstance(into, DTensor):
        whole = whole.to(into.device_mesh.device_type, into.dtype)
        whole = distribute_tensor(whole, into.device_mesh, into.placements, src_data_rank=None).to_local()
    local(into).copy_(whole)


def whole(tensor: Tensor) -> Tensor:
    """All of it, on every rank: every rank has to ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
