"""Non-saturating loss (Goodfellow et al. 2014, section 3).

-log D(x) - log(1 - D(G(z))) for D, -log D(G(z)) for G. With D = sigmoid of the logit, -log D =
softplus(-logit).
"""

from dataclasses import dataclass
from math import isfinite
from numbers import Real

import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.option_types import Positive
from paragan.core.protocols import Loss


@dataclass(frozen=True)
class Options:
    """Weight of D's loss."""

    d_weight: Positive = 1.0
    """Weight of D's loss. pix2pix uses 0.5 to slow D down.

    With Adam, which ignores the scale of the loss, it affects only penalties and clipping.
    """


def d_loss(real_B: Tensor, fake_B: Tensor) -> Tensor:
    """Return softplus(-real) + softplus(fake), elementwise."""
    return F.softplus(-real_B) + F.softplus(fake_B)


def g_loss(fake_B: Tensor, real_B: Tensor | None = None) -> Tensor:
    """Return softplus(-fake), elementwise."""
    return F.softplus(-fake_B)


def loss(options: Options) -> Loss:
    """Return both losses, D's weighted. Raises `ConfigError` for a weight that is no number."""
    # the only option of a loss; a program's is not checked by the config
    if not (isinstance(options.d_weight, Real) and isfinite(options.d_weight)):
        raise ConfigError(f"loss nonsaturating has d_weight={options.d_weight!r}; pass a finite number")
    if options.d_weight == 1:
        return Loss(d_loss, g_loss)
    return Loss(lambda real_B, fake_B: options.d_weight * d_loss(real_B, fake_B), g_loss)
