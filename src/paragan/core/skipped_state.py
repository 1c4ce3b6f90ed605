"""State that a forward changes, such as running statistics, restored if the update is then skipped."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

Place = tuple[Mapping[str, Tensor | None], str]
"""A mapping and a name in it: a network may put a new tensor there."""


class Copy(NamedTuple):
    """A place and the tensor that it had before a forward."""

    place: Place
    before: Tensor


def buffer_places(net: nn.Module) -> tuple[Place, ...]:
    """Return the places of all buffers of a network."""
    by_module = [module._buffers for module in net.modules()]
    return tuple((buffers, name) for buffers in by_module for name, buffer in buffers.items() if buffer is not None)


@torch.no_grad()
def copy_state(places: Iterable[Place]) -> list[Copy]:
    """Return a copy of the tensor at each place."""
    filled = [(place, tensor) for place in places if (tensor := place[0][place[1]]) is not None]
    copies = [torch.empty_like(tensor) for _, tensor in filled]
    if copies:
        torch._foreach_copy_(copies, [tensor for _, tensor in filled])  # one operation on an accelerator
    return [Copy(place, copy) for (place, _), copy in zip(filled, copies, strict=True)]


@torch.no_grad()
def restore_if_skipped(copies: Sequence[Copy], is_taken: Tensor) -> None:
    """Restore the state before an update that is skipped, without a host sync.

    is_taken: 0-dim bool, or (C,) for tensors whose rows belong to C games.
    """
    for (mapping, name), before in copies:
        now = mapping.get(name)
        if now is None or now.shape != before.shape:  # a cache that grew with its input
            continue
        taken = is_taken.view(-1, *(1 for _ in now.shape[1:])) if is_taken.dim() else is_taken
        # `data`: a graph that still waits for its backward (shared fakes) may hold the tensor, whose value it does not
        # need: torch's batch norm writes in the same way
        torch.where(taken.to(now.device), now.data, before, out=now.data)
