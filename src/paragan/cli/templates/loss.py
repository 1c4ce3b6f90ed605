"""mygan's losses, from logits; one value per image, never a mean. Here: non-saturating (Goodfellow et al. 2014)."""

import torch.nn.functional as F
from torch import Tensor

import paragan as pg


def d_loss(real: Tensor, fake: Tensor) -> Tensor:
    """The logit of a real image should be high, that of a generated one low."""
    return F.softplus(-real) + F.softplus(fake)


def g_loss(fake: Tensor, real: Tensor | None = None) -> Tensor:
    """The logit of a generated image should be high."""
    return F.softplus(-fake)


loss = pg.Loss(d_loss, g_loss)  # g_needs_real=True: g_loss is given the logits of real images, too
