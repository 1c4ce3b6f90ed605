"""Mean absolute difference of generated images and targets (Isola et al. 2017, equations 3, 4)."""

from dataclasses import dataclass

from torch import Tensor

from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.core.weight_schedule import Weight
from paragan.penalties._options import PenaltyOptions
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True)
class Options(PenaltyOptions):
    """Weight of the L1 distance to the target. Needs data of pairs, or a model that reconstructs."""

    weight: Weight = 100.0
    """Weight of the term in the loss: the paper's lambda, for values in [-1, 1]."""


class Penalty(OptionsPenalty):
    """Mean |fake - real| per sample, before augmentation."""

    name = "l1"
    side = Side.G
    needs_pairs = True

    def __call__(self, context: PenaltyContext) -> Tensor:
        difference = context.outputs.images - context.feed.real_sample
        return self.weight_at(context.feed.rows) * difference.abs().flatten(1).mean(1)
