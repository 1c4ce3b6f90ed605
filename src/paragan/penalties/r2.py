"""R2 (Mescheder et al. 2018, "Which Training Methods for GANs do actually Converge?", equation 10).

gamma/2 * |grad_x D(x)|^2 on samples of G; R3GAN trains with R1 and R2 (Huang et al. 2024, section 2.2).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paragan.core import protocols
from paragan.core.clock import cosine_decay
from paragan.core.option_types import Count, NotNegative, Positive
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Can, Side
from paragan.penalties._input_gradient import squared_gradient


@dataclass(frozen=True)
class Options:
    """Weight, period and fade of R2."""

    weight: NotNegative = 10.0
    """Weight of the term in the loss: the paper's gamma."""
    interval: Count = 1
    """Apply it at every n-th update only, n times as strong (lazy regularisation)."""
    final: NotNegative | None = None
    """Weight after the first `final_kimg`, reached by a cosine fade (Huang et al. 2024, appendix); null: constant."""
    final_kimg: Positive = 20_000.0
    """Length of the fade in thousands of real images."""


class Penalty(protocols.Penalty):
    """`r1` on fakes instead of real samples; no gradient reaches G."""

    name = "r2"
    side = Side.D
    needs = frozenset({Can.DOUBLE_BACKWARD})

    def __init__(self, options: Options) -> None:
        self.options, self.interval = options, options.interval

    def __call__(self, context: PenaltyContext) -> Tensor:
        assert context.feed.fakes is not None, "D's turn has fakes"
        (fakes,) = context.feed.fakes
        options = self.options
        gamma = cosine_decay(options.weight, options.final, options.final_kimg, context.feed.rows) * options.interval
        return gamma / 2 * squared_gradient(context, context.outputs.fake.logits_B, fakes)
