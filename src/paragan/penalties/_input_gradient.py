"""How steep D is where it is shown images: what R1 and R2 keep small."""

from __future__ import annotations

from torch import Tensor

from paragan.core.protocols import PenaltyContext
from paragan.penalties._logits import per_sample


def squared_slope(context: PenaltyContext, logits: Tensor, x_BCHW: Tensor) -> Tensor:
    """|d D(x) / dx|^2 per sample, (B,). Patch logits count as their mean per sample."""
    gradient = context.input_gradient(per_sample(logits), x_BCHW)
    return gradient.flatten(1).square().sum(1)
