"""A player as it was: an opponent whose weights were sent from elsewhere, with the version they had.

It brings its own spectral norm vectors and statistics and never advances them: they belong to the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.seams import Network
from paragan.game.network import CalledNetwork, Calling


class Snapshot:
    """Fulfils `core.seams.Opponent` with a network of its own. net: of the player's kind, made anew; it is frozen."""

    def __init__(self, net: nn.Module, calling: Calling | None = None, version: int = 0) -> None:
        self.net = net.requires_grad_(False)
        self.called = CalledNetwork(net, calling or Calling())
        self.version = version
        self._held = dict(net.state_dict())

    def network(self) -> Network:
        return self.called

    @property
    def num_bytes(self) -> int:
        """Of a message that holds it."""
        return sum(value.numel() * value.element_size() for value in self._held.values())

    @torch.no_grad()
    def follow(self, message: Tensor, version: int) -> None:
        """Become what `packed` has written, if it is newer. `ConfigError` for one of another network."""
        if len(message) != self.num_bytes:
            raise ConfigError(
                f"snapshot: found {len(message)} bytes, expected {self.num_bytes}: the ranks' networks are not the same"
            )
        if version <= self.version:
            return
        first = 0
        for value in self._held.values():
            size = value.numel() * value.element_size()
            value.copy_(message[first : first + size].clone().view(value.dtype).view(value.shape))
            first += size
        self.version = version


def packed(weights: Mapping[str, Tensor]) -> Tensor:
    """Parameters and buffers, as `Strategy.weights` gives them, as bytes in the order of their names in the network.

    A copy: the network may move on while it travels.
    """
    return torch.cat([value.detach().contiguous().reshape(-1).view(torch.uint8) for value in weights.values()])
