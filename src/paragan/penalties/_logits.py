"""Mean logit of each sample."""

from __future__ import annotations

from torch import Tensor


def mean_per_sample(logits: Tensor) -> Tensor:
    """Return the mean logit of each sample, (B,): patch logits are averaged."""
    return logits.flatten(1).mean(1) if logits.dim() > 1 else logits
