"""AdaBelief: Adam whose steps shrink with the variance of the gradient around its running mean.

Zhuang et al. 2020, algorithm 2. `eps` counts twice, under the root too, where Adam's 1e-8 would be
its 1e-16. The default is the authors' value for GANs, 1e-12. Unlike later defaults of their
package, this neither rectifies nor decays weights.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from paragan.optim._moments import Due, MomentOptimizer, lerp_moments, over_root


class Optimizer(MomentOptimizer):
    """AdaBelief. lr > 0; betas: of the gradient's mean and of its spread; eps: see above."""

    names = ("exp_avg", "exp_avg_var")

    def __init__(
        self, params: Iterable[Tensor], lr: float = 2e-4, betas: tuple[float, float] = (0.5, 0.999), eps: float = 1e-12
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def update(self, due: Due) -> list[Tensor]:
        """Return the AdaBelief direction."""
        first, second = due.group["betas"]
        lerp_moments(due.state["exp_avg"], due.grads, first, due.taken)
        surprise = torch._foreach_sub(due.grads, due.state["exp_avg"])
        torch._foreach_mul_(surprise, surprise)
        lerp_moments(due.state["exp_avg_var"], surprise, second, due.taken)
        torch._foreach_add_(due.state["exp_avg_var"], [due.group["eps"] * due.taken] * len(due.weights))
        return over_root(due, "exp_avg_var")
