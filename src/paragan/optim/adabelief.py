"""AdaBelief: Adam whose steps shrink with the variance of the gradient around its running mean.

Zhuang et al. 2020, algorithm 2. `eps` counts twice, under the root too, where Adam's 1e-8 would be
its 1e-16. The default is the authors' value for GANs, 1e-12. Unlike later defaults of their
package, this neither rectifies nor decays weights.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from paragan.optim._moments import MomentOptimizer, UpdateInputs, lerp_moments, over_root


class Optimizer(MomentOptimizer):
    """AdaBelief. lr > 0; betas: of the gradient's mean and of its spread; eps: see above."""

    state_names = ("exp_avg", "exp_avg_var")

    def __init__(
        self, params: Iterable[Tensor], lr: float = 2e-4, betas: tuple[float, float] = (0.5, 0.999), eps: float = 1e-12
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def update(self, inputs: UpdateInputs) -> list[Tensor]:
        """Return the AdaBelief direction."""
        first, second = inputs.group["betas"]
        lerp_moments(inputs.state["exp_avg"], inputs.grads, first, inputs.taken)
        surprise = torch._foreach_sub(inputs.grads, inputs.state["exp_avg"])
        torch._foreach_mul_(surprise, surprise)
        lerp_moments(inputs.state["exp_avg_var"], surprise, second, inputs.taken)
        torch._foreach_add_(inputs.state["exp_avg_var"], [inputs.group["eps"] * inputs.taken] * len(inputs.weights))
        return over_root(inputs, "exp_avg_var")
