"""Logit centring of relativistic losses (Lin et al. 2025, arXiv 2511.22475, section 3).

(D(x) + D(G(z)))^2: a relativistic loss sees differences of logits only, so their mean may drift.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paragan.core import protocols
from paragan.core.outputs import mean_per_sample, sum_of
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.core.weight_schedule import Weight
from paragan.penalties._options import PenaltyOptions


@dataclass(frozen=True)
class Options(PenaltyOptions):
    """Weight and period of logit centring."""

    weight: Weight = 0.01
    """Weight of the term in the loss; the authors use 0.01."""


class Penalty(protocols.Penalty):
    """Squared sum of D's logits of a real sample and of the fake in the same row, of each discriminator."""

    name = "logit_centring"
    side = Side.D

    def __init__(self, options: Options) -> None:
        self.interval = options.interval
        self.weight = options.weight

    def __call__(self, context: PenaltyContext) -> Tensor:
        outputs = context.outputs
        assert outputs.real is not None
        fake = outputs.fake.by_name
        sums = [
            mean_per_sample(one.logits_B) + mean_per_sample(fake[name].logits_B)
            for name, one in outputs.real.by_name.items()
        ]
        return self.weight_at(context.feed.rows) * sum_of([sum_B.square() for sum_B in sums])
