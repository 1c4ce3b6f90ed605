"""R2 by finite differences (Lin et al. 2025, arXiv 2501.08316, 2511.22475).

(D(x) - D(x + sigma n))^2 on samples of G; the term of `approximate_r1` on fakes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from paragan.core.outputs import DiscriminatorOutput
from paragan.core.protocols import PenaltyContext
from paragan.penalties import approximate_r1
from paragan.penalties._options import FiniteDifferenceOptions


@dataclass(frozen=True, kw_only=True)
class Options(FiniteDifferenceOptions):
    """Weight, noise and period of approximate R2."""


class Penalty(approximate_r1.Penalty):
    """The penalty of `approximate_r1` on fakes instead of real samples; no gradient reaches G."""

    name = "approximate_r2"

    def _inputs(self, context: PenaltyContext) -> tuple[DiscriminatorOutput, Sequence[Tensor | None], str]:
        feed = context.feed
        assert feed.fakes is not None, "D's turn has fakes"
        return context.outputs.fake, (feed.fakes[0], *feed.fake_conditions), "fake"
