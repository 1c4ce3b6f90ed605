"""LAMB, for large batches: Adam's direction, scaled per weight to the norm of the weight.

You et al. 2020, algorithm 2. Strategies that shard weights refuse it: the norm needs them whole.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from paragan.optim._moments import MomentOptimizer, UpdateInputs, adam_direction


class Optimizer(MomentOptimizer):
    """LAMB. lr > 0; betas, eps as Adam's; weight_decay >= 0 joins the direction before scaling.

    longest: upper bound of the norm of a weight (the paper's phi is the identity up to it). A
    weight or direction of norm 0 is not scaled.
    """

    state_names = ("exp_avg", "exp_avg_sq")
    needs_whole_weights = True

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        longest: float = 10.0,
    ) -> None:
        for name, value in {"weight_decay": weight_decay, "longest": longest}.items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite number >= 0, not {value}")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "longest": longest}
        super().__init__(params, defaults)

    def update(self, inputs: UpdateInputs) -> list[Tensor]:
        """Return Adam's direction, scaled per weight."""
        direction = adam_direction(inputs)
        if inputs.group["weight_decay"]:
            torch._foreach_add_(direction, inputs.weights, alpha=inputs.group["weight_decay"])
        weight_norms = torch._foreach_norm(inputs.weights)
        direction_norms = torch._foreach_norm(direction)
        ratios = [
            torch.where((weight > 0) & (step > 0), weight.clamp(max=inputs.group["longest"]) / step, 1.0)
            for weight, step in zip(weight_norms, direction_norms, strict=True)
        ]
        torch._foreach_mul_(direction, ratios)
        return direction
