"""Non-saturating losses of mygan (Goodfellow et al. 2014): one value per image, never a mean."""

import torch.nn.functional as F
from torch import Tensor

import paragan as pg


def d_loss(real: Tensor, fake: Tensor) -> Tensor:
    """Return the loss of D: low for high logits of real images and low ones of generated images."""
    return F.softplus(-real) + F.softplus(fake)


def g_loss(fake: Tensor, real: Tensor | None = None) -> Tensor:
    """Return the loss of G: low for high logits of generated images."""
    return F.softplus(-fake)


loss = pg.Loss(d_loss, g_loss)  # g_needs_real=True: g_loss also receives logits of real images
