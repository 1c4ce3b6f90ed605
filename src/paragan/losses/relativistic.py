"""Relativistic pairing: each fake is compared with one real sample, row by row.

RSGAN of Jolicoeur-Martineau 2019, "The relativistic discriminator", section 4.1; RpGAN in Huang et al. 2024.
"""

import torch.nn.functional as F
from torch import Tensor

from paragan.core.protocols import Loss


def d_loss(real_B: Tensor, fake_B: Tensor) -> Tensor:
    """Return softplus(fake - real), elementwise."""
    return F.softplus(fake_B - real_B)


def g_loss(fake_B: Tensor, real_B: Tensor) -> Tensor:
    """Return softplus(real - fake), elementwise: roles exchanged."""
    return F.softplus(real_B - fake_B)


loss = Loss(d_loss, g_loss, g_needs_real=True)
