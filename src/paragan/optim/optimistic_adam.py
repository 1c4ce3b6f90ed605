"""Optimistic Adam: twice this step's direction minus the last one, to anticipate the opponent.

Daskalakis et al. 2018, algorithm 1. One gradient per step, where extragradient takes two.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from paragan.optim._moments import MomentOptimizer, UpdateInputs, adam_direction


class Optimizer(MomentOptimizer):
    """Optimistic Adam; lr, betas and eps as Adam's. The state has one more tensor per weight."""

    state_names = ("exp_avg", "exp_avg_sq", "last")

    def __init__(
        self, params: Iterable[Tensor], lr: float = 1e-4, betas: tuple[float, float] = (0.5, 0.9), eps: float = 1e-8
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def update(self, inputs: UpdateInputs) -> list[Tensor]:
        """Return twice Adam's direction minus the last one."""
        direction = adam_direction(inputs)
        change = torch._foreach_sub(torch._foreach_mul(direction, 2.0), inputs.state["last"])
        # After a skipped step it is unchanged, as are its means.
        torch._foreach_copy_(inputs.state["last"], direction)
        return list(change)
