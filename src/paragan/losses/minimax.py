"""Zero-sum game (Goodfellow et al. 2014, equation 1): G minimises log(1 - D(G(z))).

With D = sigmoid of the logit, log(1 - D) = -softplus(logit). Its gradient is weak where D is sure; `nonsaturating` is
the usual remedy. Mustangs (Toutouh et al. 2019) draws one of both and `least_squares`.
"""

import torch.nn.functional as F
from torch import Tensor

from paragan.core.protocols import Loss
from paragan.losses.nonsaturating import d_loss


def g_loss(fake_B: Tensor, real_B: Tensor | None = None) -> Tensor:
    """Return -softplus(fake), elementwise."""
    return -F.softplus(fake_B)


loss = Loss(d_loss, g_loss)
