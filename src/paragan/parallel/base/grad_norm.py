"""Global norm of gradients, whole on every rank or sharded, and clipping by it."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from paragan.core.phases import Phase, phase
from paragan.layers.precision import as_real

_LOW = {torch.bfloat16, torch.float16}


def norm_of(grads: Sequence[Tensor], device: torch.device | None = None) -> Tensor:
    """Return the 2-norm of all gradients, 0-dim, at least float32; 0 on `device` without any."""
    if not grads:
        return torch.zeros((), device=device)
    real = list(map(as_real, grads))
    dtype = None if _LOW.isdisjoint([grad.dtype for grad in real]) else torch.float32
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(real, 2, dtype)))


def norm_over(
    grads: Sequence[Tensor], group: dist.ProcessGroup, device: torch.device, count: Callable[..., None]
) -> Tensor:
    """Return the 2-norm of gradients that are sharded over the group. Collective.

    count: `World.count`, of the bytes.
    """
    norms = [norm_of(on_device).to(device) for on_device in _by_device(grads).values()]
    local = norms[0] if len(norms) == 1 else norm_of(norms, device)
    if group.size() == 1:
        return local  # without square and root: bit-equal to a run without ranks
    squared = local.square()
    count("control", squared, num_ranks=group.size())
    with phase(Phase.COMMUNICATION):
        dist.all_reduce(squared, group=group)
    return squared.sqrt()


def clip(grads: Sequence[Tensor], max_norm: float | None, norm: Tensor) -> None:
    """Clip gradients to a norm of `max_norm` (Pascanu et al. 2013), without a host sync."""
    if max_norm is not None and grads:
        multiply_(grads, (max_norm / (norm + 1e-6)).clamp(max=1.0))


def multiply_(grads: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply gradients, which may be on several devices, in place by a 0-dim tensor."""
    for device, on_device in _by_device(grads).items():
        torch._foreach_mul_(on_device, factor.to(device))


def _by_device(grads: Sequence[Tensor]) -> dict[torch.device, list[Tensor]]:
    """Return gradients by device: an optimiser in host memory has offloaded shards there, but not scalars."""
    by_device: dict[torch.device, list[Tensor]] = {}
    for grad in grads:
        by_device.setdefault(grad.device, []).append(grad)
    return by_device
