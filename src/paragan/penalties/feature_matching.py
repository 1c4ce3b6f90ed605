"""Feature matching (Salimans et al. 2016, "Improved Techniques for Training GANs", section 3.1).

G's images should have the mean features, in D, of real images. The paper trains G by this loss
alone; here it is added to the adversarial loss.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.capabilities import Capability
from paragan.core.outputs import DiscriminatorOutput
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.penalties._options import PenaltyOptions
from paragan.penalties.base.feature_layers import feature_layers
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(PenaltyOptions):
    """Weight of feature matching."""


class Penalty(OptionsPenalty):
    """Squared distance of the mean D features of real images and fakes, over the whole batch.

    A value of the batch, not of samples: every row has the whole value, because the strategy averages over rows.
    """

    name = "feature_matching"
    side = Side.G
    needs = frozenset({Capability.COUPLED})
    needs_real = True
    uses_discriminator = True

    def __call__(self, context: PenaltyContext) -> Tensor:
        assert context.outputs.real is not None
        features = _features(context.outputs.fake), _features(context.outputs.real).detach()
        # side by side, so that one collective gathers both
        fake_F, real_F = context.whole(torch.cat(features, 1)).mean(0).chunk(2)
        rows = context.feed.rows
        return (self.weight_at(rows) * (fake_F - real_F).square().sum()).expand(rows.count)


def _features(output: DiscriminatorOutput) -> Tensor:
    layers: list[Tensor] = []
    for name, member in output.by_name.items():
        layers += feature_layers(member, "feature_matching", name)
    return torch.cat([layer.flatten(1) for layer in layers], 1)
