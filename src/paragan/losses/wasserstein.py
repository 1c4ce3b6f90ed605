"""Wasserstein-1 by its dual (Arjovsky et al. 2017, equation 2): D maximises real - fake.

Means a distance only for a 1-Lipschitz D: add `penalties/gradient_penalty` or use a model with spectral norm.
"""

from torch import Tensor

from paragan.core.protocols import Loss


def d_loss(real_B: Tensor, fake_B: Tensor) -> Tensor:
    """Return fake - real, elementwise."""
    return fake_B - real_B


def g_loss(fake_B: Tensor, real_B: Tensor | None = None) -> Tensor:
    """Return -fake, elementwise."""
    return -fake_B


loss = Loss(d_loss, g_loss)
