"""How a network comes to be: built whole, or built without memory for its weights and filled piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn


@dataclass(frozen=True)
class NetworkFactory:
    """construct: the module on the CPU. fill: its weights of step 0, drawn by name, into whatever pieces it has.

    fill None: the constructor's own weights stand, and the network can only be built whole.
    """

    construct: Callable[[], nn.Module]
    fill: Callable[[nn.Module], None] | None = None
    device: torch.device = torch.device("cpu")

    def __call__(self) -> nn.Module:
        """Whole, with the weights of step 0, on the device."""
        net = self.construct()
        if self.fill is not None:
            self.fill(net)
        return net.to(self.device)


class Model(Protocol):
    """A file of `models/`, or networks from memory: both are called with options, shape (C, H, W), number of classes.

    Every call gives a network of its own.
    """

    def Generator(self, options: Any, shape: tuple[int, int, int], num_classes: int) -> nn.Module: ...

    def Discriminator(self, options: Any, shape: tuple[int, int, int], num_classes: int) -> nn.Module: ...
