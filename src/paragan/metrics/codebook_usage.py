"""Share of the codes of a codebook that occur in the tokens of held-out samples, from 0 to 1.

Codes that never occur are dead: they cost bits and add nothing (Zeghidour et al. 2021, SoundStream,
section III-C, replaces them). It needs many more tokens than there are codes.
"""

from dataclasses import dataclass

from torch import Tensor

from paragan.core.metric import Direction
from paragan.metrics._codes import CodebookMetric
from paragan.metrics._options import CodebookOptions as Options

__all__ = ["Metric", "Options"]


@dataclass(frozen=True)
class Metric(CodebookMetric):
    """Share of used codes in (0, 1], mean over the codebooks."""

    name = "codebook_usage"
    is_share = True
    direction = Direction.HIGHER
    note = "Share of the codes that held-out samples use; 1 for all."

    def of_each(self, count_LK: Tensor) -> Tensor:
        """Return the share of each codebook, float64 (L,)."""
        return (count_LK > 0).double().mean(1)
