"""Adversarial losses of `losses/` as objects, for `GAN` in a loop without a config."""

from __future__ import annotations

from paragan.core.loss import Loss
from paragan.losses import (
    hinge,
    least_squares,
    minimax,
    nonsaturating,
    relativistic,
    relativistic_average,
    wasserstein,
)


class HingeLoss(Loss):
    """Hinge loss (Lim & Ye 2017, "Geometric GAN", section 3)."""

    def __init__(self) -> None:
        super().__init__(hinge.d_loss, hinge.g_loss)


class LeastSquaresLoss(Loss):
    """Least-squares loss (Mao et al. 2017, equation 9)."""

    def __init__(self) -> None:
        super().__init__(least_squares.d_loss, least_squares.g_loss)


class MinimaxLoss(Loss):
    """Minimax loss, a zero-sum game (Goodfellow et al. 2014, equation 1)."""

    def __init__(self) -> None:
        super().__init__(minimax.d_loss, minimax.g_loss)


class NonsaturatingLoss(Loss):
    """Logistic loss with the non-saturating generator (Goodfellow et al. 2014, section 3)."""

    def __init__(self, options: nonsaturating.Options | None = None) -> None:
        pair = nonsaturating.loss(options or nonsaturating.Options())
        super().__init__(pair.d, pair.g)


class RelativisticLoss(Loss):
    """Relativistic pairing loss (Jolicoeur-Martineau 2019, section 4.1; Huang et al. 2024)."""

    def __init__(self) -> None:
        super().__init__(relativistic.d_loss, relativistic.g_loss, g_needs_real=True)


class RelativisticAverageLoss(Loss):
    """Relativistic average loss (Jolicoeur-Martineau 2019, section 4.2)."""

    def __init__(self, options: relativistic_average.Options | None = None) -> None:
        pair = relativistic_average.loss(options or relativistic_average.Options())
        super().__init__(pair.d, pair.g, g_needs_real=True, compares=True)


class WassersteinLoss(Loss):
    """Wasserstein-1 loss in its dual form (Arjovsky et al. 2017, equation 2)."""

    def __init__(self) -> None:
        super().__init__(wasserstein.d_loss, wasserstein.g_loss)
