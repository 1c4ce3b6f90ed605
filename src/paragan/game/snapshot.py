"""A player as it was: an opponent whose weights were sent from elsewhere, with the version they had.

It brings its own spectral norm vectors and statistics and never advances them: they belong to the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.protocols import Network
from paragan.game.network import CalledNetwork, Calling


class Snapshot:
    """Fulfils `core.seams.Opponent` with a network of its own. net: of the player's kind, made anew; it is frozen."""

    def __init__(self, net: nn.Module, calling: Calling | None = None, version: int = 0) -> None:
        self.net = net.requires_grad_(False)
        self.plain_network = CalledNetwork(net, calling or Calling())
        self.version = version
        self._held = dict(net.state_dict())

    def network(self) -> Network:
        return self.plain_network

    @property
    def num_bytes(self) -> int:
        """Of a message that holds it."""
        return num_bytes(self._held.values())

    @torch.no_grad()
    def follow(self, message: Tensor, version: int) -> None:
        """Become what `packed` has written, if it is newer. `ConfigError` for one of another network."""
        values = unpacked("weights", message, list(self._held.values()))
        if version > self.version:
            for mine, value in zip(self._held.values(), values, strict=True):
                mine.copy_(value)
            self.version = version


def packed(weights: Mapping[str, Tensor]) -> Tensor:
    """Parameters and buffers, as `Strategy.weights` gives them, as bytes in the order of their names in the network.

    A copy: the network may move on while it travels.
    """
    return torch.cat([value.detach().contiguous().reshape(-1).view(torch.uint8) for value in weights.values()])


def unpacked(what: str, data: Tensor, like: Sequence[Tensor]) -> Iterator[Tensor]:
    """Values of these types and shapes that lie one after another. `ConfigError` for bytes that are none."""
    if len(data) != (expected := num_bytes(like)):
        raise ConfigError(f"{what}: found {len(data)} bytes, expected {expected}: the ranks' networks are not the same")
    parts = torch.split(data, [num_bytes([value]) for value in like])
    return (part.clone().view(value.dtype).view(value.shape) for part, value in zip(parts, like, strict=True))


def num_bytes(values: Iterable[Tensor]) -> int:
    return sum(value.numel() * value.element_size() for value in values)
