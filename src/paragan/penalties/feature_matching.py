"""Feature matching (Salimans et al. 2016, "Improved Techniques for Training GANs", section 3.1).

G's images should have the mean features, in D, of real images. The paper trains G by this loss
alone; here it is added to the adversarial loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core import protocols
from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Can, Side
from paragan.penalties._options import PenaltyOptions


@dataclass(frozen=True)
class Options(PenaltyOptions):
    """Weight and period of feature matching."""


class Penalty(protocols.Penalty):
    """Squared distance of the mean D features of real images and fakes, over the whole batch.

    A value of the batch, not of samples: every row has the whole value, because the strategy
    averages over rows.
    """

    name = "feature_matching"
    side = Side.G
    needs = frozenset({Can.COUPLED})
    needs_real = True

    def __init__(self, options: Options) -> None:
        self.interval = options.interval
        self.weight = options.weight * options.interval

    def __call__(self, context: PenaltyContext) -> Tensor:
        assert context.outputs.real is not None
        both = _features(context.outputs.fake), _features(context.outputs.real).detach()
        fake_F, real_F = context.whole(torch.cat(both, 1)).mean(0).chunk(2)
        return (self.weight * (fake_F - real_F).square().sum()).expand(context.feed.rows.count)


def _features(output: DiscriminatorOutput) -> Tensor:
    if output.features is None:
        raise ConfigError(
            "penalty feature_matching needs a D that returns features; let D return "
            "paragan.DiscriminatorOutput(logits, features)"
        )
    return output.features.flatten(1)
