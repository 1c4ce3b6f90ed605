"""Relativistic averages: every sample is judged against the mean logit of the other kind, over the whole batch.

RaSGAN, RaLSGAN and RaHingeGAN of Jolicoeur-Martineau 2019, "The relativistic discriminator", section 4.2, appendix D.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from paragan.core.types import Can

G_NEEDS_REAL = True
NEEDS = frozenset({Can.COUPLED})


@dataclass(frozen=True)
class Options:
    """The function of the relative logit."""

    kind: Literal["logistic", "least_squares", "hinge"] = "logistic"
    """What is applied to a logit's distance a from the mean of the others: log-sigmoid, (1 - a)^2 or max(0, 1 - a)."""


_Price = Callable[[Tensor], Tensor]  # of what is to be large
_PRICES: Mapping[str, _Price] = {
    "logistic": lambda a: F.softplus(-a),
    "least_squares": lambda a: (1 - a).square(),
    "hinge": lambda a: (1 - a).relu(),
}


class Loss:
    """The pair with its settings."""

    def __init__(self, options: Options) -> None:
        self.price = _PRICES[options.kind]

    def d_loss(
        self, real_B: Tensor, fake_B: Tensor, all_real_T: Tensor | None = None, all_fake_T: Tensor | None = None
    ) -> Tensor:
        return d_loss(real_B, fake_B, all_real_T, all_fake_T, self.price)

    def g_loss(
        self, fake_B: Tensor, real_B: Tensor, all_fake_T: Tensor | None = None, all_real_T: Tensor | None = None
    ) -> Tensor:
        return g_loss(fake_B, real_B, all_fake_T, all_real_T, self.price)


def d_loss(
    real_B: Tensor,
    fake_B: Tensor,
    all_real_T: Tensor | None = None,
    all_fake_T: Tensor | None = None,
    price: _Price = _PRICES["logistic"],
) -> Tensor:
    """price(real - mean fake) + price(mean real - fake), elementwise but for the means.

    all_real_T, all_fake_T: the logits of the whole batch, whose means count; None: those given are all there are.
    """
    mean_real, mean_fake = ((b if t is None else t).mean() for b, t in ((real_B, all_real_T), (fake_B, all_fake_T)))
    return price(real_B - mean_fake) + price(mean_real - fake_B)


def g_loss(
    fake_B: Tensor,
    real_B: Tensor,
    all_fake_T: Tensor | None = None,
    all_real_T: Tensor | None = None,
    price: _Price = _PRICES["logistic"],
) -> Tensor:
    """The same with the roles exchanged."""
    return d_loss(fake_B, real_B, all_fake_T, all_real_T, price)
