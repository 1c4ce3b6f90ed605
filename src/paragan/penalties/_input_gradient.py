"""Squared gradient of D with respect to its input: the value that R1 and R2 penalize."""

from __future__ import annotations

from torch import Tensor

from paragan.core.protocols import PenaltyContext
from paragan.penalties._logits import mean_per_sample


def squared_gradient(context: PenaltyContext, logits: Tensor, x_BCHW: Tensor) -> Tensor:
    """Return |d D(x) / dx|^2 per sample, (B,). Patch logits count as their mean per sample."""
    gradient = context.input_gradient(mean_per_sample(logits), x_BCHW)
    return gradient.flatten(1).square().sum(1)
