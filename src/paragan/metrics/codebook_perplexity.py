"""Perplexity of the codes of held-out samples: the number of equally frequent codes of that entropy.

Source: van den Oord et al. 2017 (VQ-VAE): exp of the entropy of the shares of the codes. It is 1 if
all tokens are equal, and the size of the codebook if all codes are equally frequent.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.metric import Direction
from paragan.metrics._codes import CodebookMetric
from paragan.metrics._options import CodebookOptions as Options

__all__ = ["Metric", "Options"]


@dataclass(frozen=True)
class Metric(CodebookMetric):
    """Perplexity in [1, codes], mean over the codebooks."""

    name = "codebook_perplexity"
    direction = Direction.HIGHER
    note = "Perplexity of the codes that held-out samples use; at most the size of the codebook."

    def of_each(self, count_LK: Tensor) -> Tensor:
        """Return the perplexity of each codebook, float64 (L,)."""
        share_LK = count_LK / count_LK.sum(1, keepdim=True)
        return torch.special.entr(share_LK).sum(1).exp()
