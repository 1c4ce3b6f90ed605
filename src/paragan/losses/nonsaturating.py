"""Non-saturating loss (Goodfellow et al. 2014, section 3): -log D(x) - log(1 - D(G(z))) for D, -log D(G(z)) for G.

With D = sigmoid of the logit, -log D = softplus(-logit).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from paragan.core.option_types import Positive

G_NEEDS_REAL = False


@dataclass(frozen=True)
class Options:
    """How strongly D learns."""

    d_weight: Positive = 1.0
    """Weight of D's loss. pix2pix uses 0.5 to slow D down; with Adam, which ignores the scale of the loss, only
    penalties and clipping notice.
    """


class Loss:
    """The pair with its settings."""

    def __init__(self, options: Options) -> None:
        self.weight = options.d_weight

    def d_loss(self, real_B: Tensor, fake_B: Tensor) -> Tensor:
        return d_loss(real_B, fake_B) if self.weight == 1 else self.weight * d_loss(real_B, fake_B)

    def g_loss(self, fake_B: Tensor, real_B: Tensor | None = None) -> Tensor:
        return g_loss(fake_B, real_B)


def d_loss(real_B: Tensor, fake_B: Tensor) -> Tensor:
    """softplus(-real) + softplus(fake), elementwise."""
    return F.softplus(-real_B) + F.softplus(fake_B)


def g_loss(fake_B: Tensor, real_B: Tensor | None = None) -> Tensor:
    """softplus(-fake), elementwise."""
    return F.softplus(-fake_B)
