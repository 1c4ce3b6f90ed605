"""Messages of a server and its workers.

Workers send gradients and buffers ("up"), the server sends states of networks ("down").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paragan.core.outputs import sum_of
from paragan.core.skipped_state import buffer_places, copy_state, restore_if_skipped
from paragan.game.player import Player
from paragan.game.snapshot import num_bytes, packed, unpacked


@dataclass(frozen=True)
class NetworkChange:
    """Gradients and buffers of one turn, on the host.

    gradients: by parameter; None if the turn does not reach it. buffers: their values after the
    turn: vectors of spectral norm, statistics of batch norm.
    """

    gradients: Sequence[Tensor | None]
    buffers: Sequence[Tensor]

    @classmethod
    def read(cls, data: Tensor, net: nn.Module) -> NetworkChange:
        """Read what `pack_change` wrote. net: a network of the same class."""
        weights = list(net.parameters())
        reached = data[: len(weights)].tolist()  # whether each weight has a gradient
        reached_weights = [weight for weight, has_gradient in zip(weights, reached, strict=True) if has_gradient]
        values = unpacked("gradients", data[len(weights) :], [*reached_weights, *_buffers(net)])
        gradients = [next(values) if has_gradient else None for has_gradient in reached]
        return cls(gradients, list(values))  # what follows the gradients are the buffers

    @classmethod
    def total(cls, changes: Sequence[NetworkChange]) -> NetworkChange:
        """Sum the gradients of shares of one batch; average the buffers, bit-exact if equal."""
        gradients = zip(*(change.gradients for change in changes), strict=True)
        buffers = zip(*(change.buffers for change in changes), strict=True)
        return cls([_sum(values) for values in gradients], [_mean(values) for values in buffers])

    def scaled(self, factor: float) -> NetworkChange:
        """Return the same change with its gradients multiplied by `factor`."""
        gradients = [None if gradient is None else gradient * factor for gradient in self.gradients]
        return NetworkChange(gradients, self.buffers)

    @torch.no_grad()
    def apply(self, player: Player, images: int) -> Tensor:
        """Step the player by these gradients of `images` images; returns their norm."""
        before = copy_state(buffer_places(player.net))
        for buffer, value in zip(_buffers(player.net), self.buffers, strict=True):
            buffer.copy_(value)
        norm = player.apply_external_gradients(self.gradients, images)
        restore_if_skipped(before, norm.isfinite())
        return norm


def pack_change(net: nn.Module) -> Tensor:
    """Serialise which parameters have a gradient, these gradients, and the buffers, to bytes."""
    weights = dict(net.named_parameters())
    gradients = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
    device = next(net.parameters()).device
    reached = torch.tensor([name in gradients for name in weights], dtype=torch.uint8, device=device)
    buffers = {f"buffer {i}": buffer for i, buffer in enumerate(_buffers(net))}
    return packed({"reached": reached, **gradients, **buffers}).cpu()


@torch.no_grad()
def load_packed(net: nn.Module, weights: Tensor) -> None:
    """Load what `packed` wrote of a network of the same class."""
    tensors = list(net.state_dict().values())
    for tensor, value in zip(tensors, unpacked("weights", weights, tensors), strict=True):
        tensor.copy_(value)


def max_message_bytes(net: nn.Module) -> int:
    """Return the size of the largest message about a network, which is that of `pack_change` with all gradients."""
    return num_bytes(net.state_dict().values()) + len(list(net.parameters()))


def _buffers(net: nn.Module) -> list[Tensor]:
    """Return what the state of a network has besides its weights."""
    weights = {name for name, _ in net.named_parameters(remove_duplicate=False)}
    return [value for name, value in net.state_dict().items() if name not in weights]


def _sum(values: Iterable[Tensor | None]) -> Tensor | None:
    """Return the sum of the tensors in their order; None if all are None."""
    present = [value for value in values if value is not None]
    return sum_of(present) if present else None


def _mean(values: Sequence[Tensor]) -> Tensor:
    """Return the mean, bit-exact for equal values (offset to the first); of integers the first."""
    first = values[0]
    if not first.is_floating_point():
        return first
    return first + torch.stack([value - first for value in values]).mean(0)
