"""Networks, data, loss and terms of a program, in place of the files that a config names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from paragan.core.network_factory import copy_networks
from paragan.core.protocols import Loss, Penalty
from paragan.core.source import Source
from paragan.core.types import Side

LATENT = "latent"


def dtype_of_weights(net: nn.Module) -> torch.dtype:
    """Return the number format of a network's first weight of real numbers; float32 for a network without weights."""
    return next((weight.dtype for weight in net.parameters() if weight.is_floating_point()), torch.float32)


@dataclass(frozen=True, kw_only=True)
class TensorGame:
    """Objects of a game on named tensors; a `core.network_factory.Model` whose networks are copies.

    discriminator_arguments: names of the tensors that D receives, in order; the first is what G generates.
    generator_arguments: those of G; `latent` is drawn. held_out: `source` if there are no held-out samples.
    loss: None if the config names one. terms: by name and side. players: networks of extra players, by name.
    """

    g: nn.Module
    d: nn.Module
    source: Source
    held_out: Source
    discriminator_arguments: tuple[str, ...]
    generator_arguments: tuple[str, ...]
    loss: Loss | None
    terms: Mapping[tuple[str, Side], Penalty]
    players: Mapping[str, nn.Module] = field(default_factory=dict)

    @property
    def latent(self) -> int:
        """Length of G's latent; 0 for none."""
        # `game.named_inputs` has checked that it is an int
        return self.g.latent if LATENT in self.generator_arguments else 0  # type: ignore[return-value]

    @property
    def dtype(self) -> torch.dtype:
        """Number format of G's weights, and of the latent."""
        return dtype_of_weights(self.g)

    def network(self, side: Side) -> nn.Module:
        """Return a copy of one player's network."""
        return copy_networks({"g": self.g, "d": self.d, **self.players}[side.value])

    def Generator(self, *options: Any) -> nn.Module:
        """Return a copy of the generator."""
        return self.network(Side.G)

    def Discriminator(self, *options: Any) -> nn.Module:
        """Return a copy of the discriminator."""
        return self.network(Side.D)
