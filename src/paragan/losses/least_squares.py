"""Least squares (LSGAN, Mao et al. 2017, equation 9) with a = 0, b = c = 1.

The halves are the paper's; much code omits them (HiFi-GAN, DAC), which doubles both losses. For
theirs, give each discriminator the weight 2 (`adversarial.weights`).
"""

from torch import Tensor

from paragan.core.protocols import Loss


def d_loss(real_B: Tensor, fake_B: Tensor) -> Tensor:
    """Return ((real - 1)^2 + fake^2) / 2, elementwise."""
    return ((real_B - 1).square() + fake_B.square()) / 2


def g_loss(fake_B: Tensor, real_B: Tensor | None = None) -> Tensor:
    """Return (fake - 1)^2 / 2, elementwise."""
    return (fake_B - 1).square() / 2


loss = Loss(d_loss, g_loss)
