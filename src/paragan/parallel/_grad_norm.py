"""Global norm of gradients, whole on every rank or sharded, and clipping by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from paragan.core.phases import Phase, phase

_LOW = (torch.bfloat16, torch.float16)


def norm_of(grads: Sequence[Tensor], device: torch.device | None = None) -> Tensor:
    """Return the 2-norm of all gradients, 0-dim, at least float32; 0 on `device` without any."""
    if not grads:
        return torch.zeros((), device=device)
    dtype = torch.float32 if any(g.dtype in _LOW for g in grads) else None
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(grads), 2, dtype)))


def norm_over(
    grads: Sequence[Tensor], group: dist.ProcessGroup, device: torch.device, count: Callable[..., None]
) -> Tensor:
    """Return the 2-norm of gradients that are sharded over the group. Collective.

    count: `World.count`, of the bytes.
    """
    mine = norm_of(grads, device).to(device)
    if group.size() == 1:
        return mine  # without square and root: bit-equal to a run without ranks
    squared = mine.square()
    count("control", squared, num_ranks=group.size())
    with phase(Phase.COMMUNICATION):
        dist.all_reduce(squared, group=group)
    return squared.sqrt()


def clip(grads: Sequence[Tensor], max_norm: float | None, norm: Tensor) -> None:
    """Clip gradients to a norm of `max_norm` (Pascanu et al. 2013), without a host sync."""
    if max_norm is not None and grads:
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(list(grads), factor.to(grads[0].device))
