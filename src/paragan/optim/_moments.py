"""Base of the optimizers of this package: running means, and steps skipped on the device.

Torch's protocol with its GradScaler: where `found_inf` (0-dim, on the weights' device) is 1, `step`
changes nothing, without a host sync. `lr` may be a 0-dim tensor on that device.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paragan.layers.precision import as_real


@dataclass(frozen=True, kw_only=True)
class UpdateInputs:
    """Inputs of the update of one group, as parallel lists by weight. taken: 1, or 0 if nothing may change."""

    group: Mapping[str, Any]
    weights: list[Tensor]
    grads: list[Tensor]
    state: Mapping[str, list[Tensor]]
    taken: Tensor


class MomentOptimizer(torch.optim.Optimizer):
    """Optimizer that steps by what `update` returns for each group of weights with gradients.

    state_names: of the state in addition to `step`, each shaped as its weight.
    """

    _step_supports_amp_scaling = True  # torch's GradScaler sets `found_inf` then, and does not read it
    state_names: tuple[str, ...] = ()
    found_inf: Tensor | None = None

    def __init__(self, params: Iterable[Tensor], defaults: Mapping[str, Any]) -> None:
        if not 0 <= float(defaults["lr"]) < float("inf"):
            raise ValueError(f"lr must be at least 0 and finite, not {defaults['lr']}")
        if not 0 <= float(defaults["eps"]) < 1:
            raise ValueError(f"eps must be at least 0 and below 1, not {defaults['eps']}")
        if not all(0 <= beta < 1 for beta in defaults["betas"]):
            raise ValueError(f"betas must be at least 0 and below 1, not {list(defaults['betas'])}")
        super().__init__(params, dict(defaults))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient. closure: not supported."""
        if closure is not None:
            raise ValueError("step takes no closure; compute the gradients before the call")
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                entries = [self._state_of(weight) for weight in weights]
                state = {name: [entry[name] for entry in entries] for name in ("step", *self.state_names)}
                self._step_group(group, weights, state)

    def _step_group(self, group: Mapping[str, Any], weights: list[Tensor], state: Mapping[str, list[Tensor]]) -> None:
        # As pairs of real numbers, whose squares are not negative.
        grads = [as_real(weight.grad) for weight in weights if weight.grad is not None]
        weights = list(map(as_real, weights))
        state = {name: list(map(as_real, tensors)) for name, tensors in state.items()}
        if self.found_inf is None:
            taken = torch.ones_like(state["step"][0])
        else:
            taken = (1 - self.found_inf).to(state["step"][0])
            grads = [torch.where(taken > 0, grad, 0) for grad in grads]  # NaN times 0 is NaN
        torch._foreach_add_(state["step"], [taken] * len(weights))  # a 0-dim tensor alone is read by the host
        changes = self.update(UpdateInputs(group=group, weights=weights, grads=grads, state=state, taken=taken))
        torch._foreach_mul_(changes, group["lr"] * taken)
        torch._foreach_sub_(weights, changes)

    @abstractmethod
    def update(self, inputs: UpdateInputs) -> list[Tensor]:
        """Return the changes, which are multiplied by -lr and added to the weights; new tensors."""

    def _state_of(self, weight: Tensor) -> dict[str, Tensor]:
        state = self.state[weight]
        if not state:
            exact = torch.promote_types(weight.dtype.to_real(), torch.float32)
            state["step"] = torch.zeros((), dtype=exact, device=weight.device)
            for name in self.state_names:
                state[name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        return state


def lerp_moments(means: list[Tensor], values: Sequence[Tensor], beta: float, taken: Tensor) -> None:
    """Update running means in place: mean <- beta mean + (1 - beta) value."""
    differences = torch._foreach_sub(list(values), means)
    torch._foreach_mul_(differences, (1 - beta) * taken)
    torch._foreach_add_(means, differences)


def unbiased(means: list[Tensor], beta: float, steps: list[Tensor]) -> list[Tensor]:
    """Return bias-corrected means, mean / (1 - beta^step); 0 before the first step."""
    weights = [1 - beta**step for step in steps]
    pairs = zip(means, weights, strict=True)
    return [mean / torch.where(weight > 0, weight, 1).to(mean.dtype) for mean, weight in pairs]


def adam_direction(inputs: UpdateInputs) -> list[Tensor]:
    """Return m / (sqrt(v) + eps), both bias-corrected (Kingma & Ba 2015, algorithm 1)."""
    first, second = inputs.group["betas"]
    lerp_moments(inputs.state["exp_avg"], inputs.grads, first, inputs.taken)
    lerp_moments(inputs.state["exp_avg_sq"], torch._foreach_mul(inputs.grads, inputs.grads), second, inputs.taken)
    return over_root(inputs, "exp_avg_sq")


def over_root(inputs: UpdateInputs, second: str) -> list[Tensor]:
    """Return m / (sqrt(v) + eps), bias-corrected; new tensors. second: v's name."""
    direction = unbiased(inputs.state["exp_avg"], inputs.group["betas"][0], inputs.state["step"])
    denominator = unbiased(inputs.state[second], inputs.group["betas"][1], inputs.state["step"])
    torch._foreach_sqrt_(denominator)
    torch._foreach_add_(denominator, inputs.group["eps"])
    torch._foreach_div_(direction, denominator)
    return direction
