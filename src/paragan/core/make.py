"""How a network comes to be: built whole, or built without memory for its weights and filled piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Make:
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
