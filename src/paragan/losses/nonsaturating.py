"""Non-saturating loss (Goodfellow et al. 2014, section 3): -log D(x) - log(1 - D(G(z))) for D, -log D(G(z)) for G.

With D = sigmoid of the logit, -log D = softplus(-logit).
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

G_NEEDS_REAL = False


def d_loss(real_B: Tensor, fake_B: Tensor) -> Tensor:
    """softplus(-real) + softplus(fake), elementwise."""
    return F.softplus(-real_B) + F.softplus(fake_B)


def g_loss(fake_B: Tensor, real_B: Tensor | None = None) -> Tensor:
    """softplus(-fake), elementwise."""
    return F.softplus(-fake_B)
