"""Cycle consistency and identity (Zhu et al. 2017, CycleGAN, equation 2 and section 5.2).

weight * (|F(G(a)) - a| + |G(F(b)) - b|) + identity * weight * (|F(a) - a| + |G(b) - b|), means of pixels.
"""

from dataclasses import dataclass

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.option_types import NotNegative
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.core.weight_schedule import Weight
from paragan.penalties._options import PenaltyOptions
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True)
class Options(PenaltyOptions):
    """Weights of cycle consistency and identity. Needs a model that translates both ways, as `cyclegan`."""

    weight: Weight = 10.0
    """Weight of the cycle in the loss; the paper's lambda."""
    identity: NotNegative = 0.5
    """Weight of the identity as a share of `weight`; 0: none. The paper has it for paintings alone."""


class Penalty(OptionsPenalty):
    """Mean absolute differences per sample, of G's outputs `cycle` and `identity`, summed over both kinds."""

    name = "cycle"
    side = Side.G
    needs_named_tensors = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.shares = {"cycle": 1.0, "identity": options.identity}

    def __call__(self, context: PenaltyContext) -> Tensor:
        real = context.feed.real_sample
        value = real.new_zeros(len(real))
        for name, share in self.shares.items():
            if not share:
                continue
            if name not in context.outputs.extra:
                raise ConfigError(
                    f"penalty cycle needs the output {name!r} of G; use model cyclegan, with model.identity=true for "
                    "the identity, or set identity: 0"
                )
            difference = (context.outputs.extra[name] - real).abs().flatten(1)
            value = value + 2 * share * difference.mean(1)  # the mean is over both kinds
        return self.weight_at(context.feed.rows) * value
