"""Feature matching (Salimans et al. 2016, "Improved Techniques for Training GANs", section 3.1).

G's images are to have the features, in D, that real ones have on average. The paper trains G by that alone; here it
joins the adversarial loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import protocols
from paragan.core.errors import ConfigError
from paragan.core.option_types import Count, NotNegative
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Can, DiscriminatorOutput, Side


@dataclass(frozen=True)
class Options:
    """Weight and period of feature matching."""

    weight: NotNegative = 1.0
    """Weight in G's loss."""
    interval: Count = 1
    """Apply it at every n-th update only, n times as strong (lazy regularisation)."""


class Penalty(protocols.Penalty):
    """weight * |mean of f(x) - mean of f(G(z))|^2 over the whole batch, f being the features of D's verdict.

    It has no samples, but the strategy sums rows and divides by the batch: so every row carries the whole value.
    """

    name = "feature_matching"
    side = Side.G
    needs = frozenset({Can.COUPLED})
    needs_real = True

    def __init__(self, options: Options) -> None:
        self.interval, self.weight = options.interval, options.weight * options.interval

    def __call__(self, context: PenaltyContext) -> Tensor:
        assert context.outputs.real is not None
        both = _features(context.outputs.fake), _features(context.outputs.real).detach()
        fake_F, real_F = context.whole(torch.cat(both, 1)).mean(0).chunk(2)
        return (self.weight * (fake_F - real_F).square().sum()).expand(context.feed.rows.count)


def _features(verdict: DiscriminatorOutput) -> Tensor:
    if verdict.features is None:
        raise ConfigError(
            "penalties: feature_matching compares features of D, found none; let D return "
            "paragan.Verdict(logits, features)"
        )
    return verdict.features.flatten(1)
