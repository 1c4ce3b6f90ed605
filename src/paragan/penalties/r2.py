"""R2 (Mescheder et al. 2018, "Which Training Methods for GANs do actually Converge?", equation 10).

gamma/2 * |grad_x D(x)|^2 on samples of G; R3GAN uses R1 and R2 (Huang et al. 2024, section 2.2).
"""

from dataclasses import dataclass

from torch import Tensor

from paragan.core.outputs import DiscriminatorOutput
from paragan.core.protocols import PenaltyContext
from paragan.penalties import r1
from paragan.penalties._options import GammaOptions


@dataclass(frozen=True, kw_only=True)
class Options(GammaOptions):
    """Weight and period of R2."""


class Penalty(r1.Penalty):
    """R1's penalty on fakes instead of real samples; no gradient reaches G."""

    name = "r2"

    def _inputs(self, context: PenaltyContext) -> tuple[DiscriminatorOutput, Tensor]:
        assert context.feed.fakes is not None, "D's turn has fakes"
        (fakes,) = context.feed.fakes
        return context.outputs.fake, fakes
