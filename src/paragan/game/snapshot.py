"""An earlier state of a player as an opponent: weights sent by other ranks, with their version.

Its spectral norm vectors and statistics are those of the weights, and never advance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.protocols import Network
from paragan.game.network import CalledNetwork, Calling


class Snapshot:
    """An `Opponent` with a separate, frozen network. net: a new network of the player's class."""

    def __init__(self, net: nn.Module, calling: Calling | None = None, version: int = 0) -> None:
        self.net = net.requires_grad_(False)
        self.plain_network = CalledNetwork(net, calling or Calling())
        self.version = version
        self._tensors = dict(net.state_dict())

    def network(self) -> Network:
        """Return the frozen network."""
        return self.plain_network

    @property
    def num_bytes(self) -> int:
        """Size of a message with its state."""
        return num_bytes(self._tensors.values())

    @torch.no_grad()
    def follow(self, message: Tensor, version: int) -> None:
        """Load what `packed` wrote, if it is newer; `ConfigError` if it is of another network."""
        values = unpacked("weights", message, list(self._tensors.values()))
        if version > self.version:
            for tensor, value in zip(self._tensors.values(), values, strict=True):
                tensor.copy_(value)
            self.version = version


def packed(weights: Mapping[str, Tensor]) -> Tensor:
    """Return a copy of parameters and buffers (`Strategy.weights`) as bytes, in their order."""
    flat = [value.detach().contiguous().reshape(-1) for value in weights.values()]
    return torch.cat([value.view(torch.uint8) for value in flat])


def unpacked(what: str, data: Tensor, like: Sequence[Tensor]) -> Iterator[Tensor]:
    """Return tensors of these types and shapes from bytes; `ConfigError` if the size is wrong."""
    if len(data) != (expected := num_bytes(like)):
        raise ConfigError(f"{what}: received {len(data)} bytes instead of {expected}: the networks of the ranks differ")
    parts = torch.split(data, [num_bytes([value]) for value in like])
    pairs = zip(parts, like, strict=True)
    return (part.clone().view(value.dtype).view(value.shape) for part, value in pairs)


def num_bytes(values: Iterable[Tensor]) -> int:
    """Return the total size of the tensors in bytes."""
    return sum(value.numel() * value.element_size() for value in values)
