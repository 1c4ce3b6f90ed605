"""One logit for each sample, whatever D returns."""

from __future__ import annotations

from torch import Tensor


def per_sample(logits: Tensor) -> Tensor:
    """(B,): patch logits count as their mean."""
    return logits.flatten(1).mean(1) if logits.dim() > 1 else logits
