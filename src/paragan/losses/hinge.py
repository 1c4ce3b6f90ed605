"""Hinge loss (Lim & Ye 2017, "Geometric GAN"; Miyato et al. 2018, equations 16 and 17)."""

from torch import Tensor

from paragan.core.protocols import Loss


def d_loss(real_B: Tensor, fake_B: Tensor) -> Tensor:
    """Return max(0, 1 - real) + max(0, 1 + fake), elementwise.

    Samples beyond the margin give no gradient.
    """
    return (1 - real_B).relu() + (1 + fake_B).relu()


def g_loss(fake_B: Tensor, real_B: Tensor | None = None) -> Tensor:
    """Return -fake, elementwise."""
    return -fake_B


loss = Loss(d_loss, g_loss)
