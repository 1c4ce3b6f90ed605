"""What a server and its workers send each other, as bytes: up, what a turn does to a network; down, its weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paragan.game.player import Player
from paragan.game.snapshot import num_bytes, packed, unpacked


@dataclass(frozen=True)
class NetworkChange:
    """What one turn does to a network, on the host. gradients: by parameter; None where the turn does not lead to it.

    buffers: as the turn has left them: the vectors of spectral norm, the statistics of batch norm.
    """

    gradients: Sequence[Tensor | None]
    buffers: Sequence[Tensor]

    @classmethod
    def read(cls, data: Tensor, net: nn.Module) -> NetworkChange:
        """What `moved` has written of a network of this kind."""
        weights, buffers = list(net.parameters()), _buffers(net)
        reached = data[: len(weights)].tolist()
        there = [weight for weight, is_there in zip(weights, reached, strict=True) if is_there]
        values = unpacked("gradients", data[len(weights) :], [*there, *buffers])
        return cls([next(values) if is_there else None for is_there in reached], list(values))

    @classmethod
    def total(cls, parts: Sequence[NetworkChange]) -> NetworkChange:
        """Gradients added up, of shares of one batch; buffers as their mean, which of equal ones is the same bits."""
        gradients = zip(*(part.gradients for part in parts), strict=True)
        buffers = zip(*(part.buffers for part in parts), strict=True)
        return cls([_sum(given) for given in gradients], [_mean(given) for given in buffers])

    def times(self, factor: float) -> NetworkChange:
        """With larger gradients."""
        return NetworkChange([None if g is None else g * factor for g in self.gradients], self.buffers)

    @torch.no_grad()
    def apply(self, player: Player, images: int) -> Tensor:
        """The player moves so; the norm of the gradients. images: that they are of."""
        for mine, value in zip(_buffers(player.net), self.buffers, strict=True):
            mine.copy_(value)
        return player.apply_external_gradients(self.gradients, images)


def moved(net: nn.Module) -> Tensor:
    """As bytes: which parameters have a gradient, those gradients, the buffers."""
    weights = dict(net.named_parameters())
    found = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
    device = next(net.parameters()).device
    reached = torch.tensor([name in found for name in weights], dtype=torch.uint8, device=device)
    return packed({"": reached, **found} | {f"buffer {i}": b for i, b in enumerate(_buffers(net))}).cpu()


@torch.no_grad()
def become(net: nn.Module, weights: Tensor) -> None:
    """What `packed` has written of a network of this kind."""
    held = list(net.state_dict().values())
    for mine, value in zip(held, unpacked("weights", weights, held), strict=True):
        mine.copy_(value)


def most_bytes(net: nn.Module) -> int:
    """Of a message about it, either way."""
    return num_bytes(net.state_dict().values()) + len(list(net.parameters()))


def _buffers(net: nn.Module) -> list[Tensor]:
    weights = {name for name, _ in net.named_parameters(remove_duplicate=False)}
    return [value for name, value in net.state_dict().items() if name not in weights]


def _sum(given: Iterable[Tensor | None]) -> Tensor | None:
    """In their order, of those that are there."""
    there = [value for value in given if value is not None]
    return torch.stack(there).sum(0) if len(there) > 1 else next(iter(there), None)


def _mean(given: Sequence[Tensor]) -> Tensor:
    """From the first one on, so that equal ones stay as they are; of counts the first."""
    first = given[0]
    return first + torch.stack([one - first for one in given]).mean(0) if first.is_floating_point() else first
