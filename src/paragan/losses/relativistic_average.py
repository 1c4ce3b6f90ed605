"""Relativistic averages: each sample is compared with the mean logit of the other kind.

RaSGAN, RaLSGAN and RaHingeGAN of Jolicoeur-Martineau 2019, "The relativistic discriminator",
section 4.2, appendix D. Means are over the whole batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.protocols import Loss


@dataclass(frozen=True)
class Options:
    """Function of the relative logit."""

    kind: Literal["logistic", "least_squares", "hinge"] = "logistic"
    """Function of a logit's distance a from the mean of the other kind.

    Log-sigmoid, (1 - a)^2 or max(0, 1 - a).
    """


_Price = Callable[[Tensor], Tensor]  # decreasing in a
_PRICES: Mapping[str, _Price] = {
    "logistic": lambda a: F.softplus(-a),
    "least_squares": lambda a: (1 - a).square(),
    "hinge": lambda a: (1 - a).relu(),
}


def d_loss(
    real_B: Tensor,
    fake_B: Tensor,
    all_real_T: Tensor | None = None,
    all_fake_T: Tensor | None = None,
    price: _Price = _PRICES["logistic"],
) -> Tensor:
    """Return price(real - mean fake) + price(mean real - fake), elementwise except for the means.

    all_real_T, all_fake_T: the logits of the whole batch; None: the given ones are the whole batch.
    """
    mean_real = (real_B if all_real_T is None else all_real_T).mean()
    mean_fake = (fake_B if all_fake_T is None else all_fake_T).mean()
    return price(real_B - mean_fake) + price(mean_real - fake_B)


def g_loss(
    fake_B: Tensor,
    real_B: Tensor,
    all_fake_T: Tensor | None = None,
    all_real_T: Tensor | None = None,
    price: _Price = _PRICES["logistic"],
) -> Tensor:
    """Return D's loss with the roles exchanged."""
    return d_loss(fake_B, real_B, all_fake_T, all_real_T, price)


def loss(options: Options) -> Loss:
    """Return both losses with this function of the relative logit. Raises `ConfigError` for another name."""
    if options.kind not in _PRICES:
        raise ConfigError(f"loss relativistic_average has kind={options.kind!r}; pass one of {', '.join(_PRICES)}")
    price = _PRICES[options.kind]
    return Loss(partial(d_loss, price=price), partial(g_loss, price=price), g_needs_real=True, compares=True)
