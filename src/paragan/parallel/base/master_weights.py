"""Optimiser with a copy of the weights: in float32, or in host memory."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from paragan.core.layout import optimizer_weights

Build = Callable[[Iterable[tuple[str, Tensor]]], torch.optim.Optimizer]


class MasterWeights:
    """Optimiser that steps copies of `weights`, at least in float32, on `device` and writes them back.

    Micikevicius et al. 2018, section 3.1. Same interface as the inner optimiser. copies: what that
    steps, in the order of `weights`; their values are part of the state, as `master`.
    """

    def __init__(self, weights: Mapping[str, Tensor], build: Build, device: torch.device) -> None:
        self.weights = list(weights.values())
        copies = (w.detach().to(device, torch.promote_types(w.dtype, torch.float32), copy=True) for w in self.weights)
        self.copies = [copy.requires_grad_() for copy in copies]
        self.inner = build(zip(weights, self.copies, strict=True))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.inner.param_groups

    @property
    def state(self) -> dict[Tensor, Any]:
        return self.inner.state

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return getattr(self.inner, "_step_supports_amp_scaling", False)

    @torch.no_grad()
    def step(self) -> None:
        for name in ("found_inf", "grad_scale"):  # by which a fused step skips (`game.optimizer_calls.step_if`)
            flag = getattr(self, name, None)
            setattr(self.inner, name, None if flag is None else flag.to(self.copies[0].device))
        for weight, copy in zip(self.weights, self.copies, strict=True):
            copy.grad = None if weight.grad is None else weight.grad.to(copy.device, copy.dtype)
        self.inner.step()
        self.write_back()

    def zero_grad(self) -> None:
        for tensor in (*self.weights, *self.copies):
            tensor.grad = None

    def state_dict(self) -> dict[str, Any]:
        saved = self.inner.state_dict()
        copies = enumerate(optimizer_weights(self).values())
        state = {number: {**saved["state"].get(number, {}), "master": copy.detach()} for number, copy in copies}
        return {**saved, "state": state}

    @torch.no_grad()
    def load_state_dict(self, saved: dict[str, Any]) -> None:
        state = {number: dict(entry) for number, entry in saved["state"].items()}
        weights = dict(zip(self.copies, self.weights, strict=True))
        for number, copy in enumerate(optimizer_weights(self).values()):  # numbered as in the state
            copy.copy_(state.get(number, {}).pop("master", weights[copy]))  # leaves {} if never stepped
        self.inner.load_state_dict({**saved, "state": {number: entry for number, entry in state.items() if entry}})
        self.write_back()

    def write_back(self) -> None:
        """Copy the values of the copies into the weights."""
        for weight, copy in zip(self.weights, self.copies, strict=True):
            weight.detach().copy_(copy)
