"""Construction of networks: as a whole, or without memory for the weights, which are filled shard
by shard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn


@dataclass(frozen=True)
class NetworkFactory:
    """Builds one network with its initial weights.

    construct: returns the module on the CPU. fill: draws the initial weights by name, into the
    shards that a module has; None: the constructor's weights are used, and the network cannot be
    built in shards.
    """

    construct: Callable[[], nn.Module]
    fill: Callable[[nn.Module], None] | None = None
    device: torch.device = torch.device("cpu")

    def __call__(self) -> nn.Module:
        """Build the unsharded network with its initial weights, on the device."""
        net = self.construct()
        if self.fill is not None:
            self.fill(net)
        return net.to(self.device)


class Model(Protocol):
    """A file of `models/`, or networks from memory: both are called with options, shape (C, H, W),
    number of classes.

    Every call returns a new network.
    """

    def Generator(self, options: Any, shape: tuple[int, int, int], num_classes: int) -> nn.Module: ...

    def Discriminator(self, options: Any, shape: tuple[int, int, int], num_classes: int) -> nn.Module: ...
