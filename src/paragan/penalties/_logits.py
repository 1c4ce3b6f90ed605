"""Mean logit of each sample."""

from __future__ import annotations

from torch import Tensor


def mean_per_sample(logits: Tensor) -> Tensor:
    """Return (B,): patch logits are averaged per sample."""
    return logits.flatten(1).mean(1) if logits.dim() > 1 else logits
