"""What people write when they meet these problems for the first time: plain torch, each piece right on one process.

Kept apart from the library on purpose: the regression tests of the pain points show that this code fails.
"""

from __future__ import annotations

import torch
from torch import nn


class Both(nn.Module):
    """Two networks behind one wrapper; each turn uses what it needs of them."""

    def __init__(self, g: nn.Module, d: nn.Module) -> None:
        super().__init__()
        self.g, self.d = g, d

    def forward(self, z, turn):
        fake = self.g(z)
        return self.d(fake if turn == "g" else fake.detach())


def r1_alone(d: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A loss of the input's gradient and nothing else."""
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(d(x).sum(), x, create_graph=True)
    return slope.flatten(1).square().sum(1).mean()
