"""Loss of an auxiliary classifier (ACGAN, Odena et al. 2017, equation 3).

D also classifies images, and G is trained to generate images that D classifies correctly. For a D
with class logits: `model.head=auxiliary` of `biggan`, `sagan` and `sngan`.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.penalties._options import SideOptions
from paragan.penalties._similarity import no_labels_message
from paragan.penalties.base.options_penalty import OptionsPenalty


@dataclass(frozen=True, kw_only=True)
class Options(SideOptions):
    """Weight and side of the classification loss."""

    fakes: bool = True
    """Whether D also learns classes from G's images, as in the paper; later work does not.

    Early fakes have no recognizable class.
    """


class Penalty(OptionsPenalty):
    """Cross-entropy of the class logits per sample: real and fake in D's turn, fake in G's."""

    name = "auxiliary"
    uses_discriminator = True
    options: Options

    def __call__(self, context: PenaltyContext) -> Tensor:
        outputs = context.outputs
        feed = context.feed
        weight = self.weight_at(feed.rows)
        if self.side is Side.G:
            return weight * _cross_entropy(outputs.fake, feed.label)
        assert outputs.real is not None and feed.real is not None
        loss_B = _cross_entropy(outputs.real, feed.real.label)
        if self.options.fakes:
            loss_B = loss_B + _cross_entropy(outputs.fake, feed.label)
        return weight * loss_B


def _cross_entropy(output: DiscriminatorOutput, y_B: Tensor | None) -> Tensor:
    """Return -log of the probability of the right class, (B,)."""
    if y_B is None:
        raise ConfigError(no_labels_message("auxiliary"))
    classes_BK = output.single("penalty auxiliary").classes_BK
    if classes_BK is None:
        raise ConfigError(
            "penalty auxiliary needs a D with class logits; set model.head=auxiliary (biggan, sagan, sngan; not "
            "model.conditional=false), or let D return paragan.DiscriminatorOutput(logits, features, classes)"
        )
    return F.cross_entropy(classes_BK, y_B, reduction="none")
