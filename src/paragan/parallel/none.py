"""One process, the whole network, the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core.seams import Network, Turn
from paragan.core.types import Can, Side, Terms
from paragan.parallel import _loop


class Strategy:
    can = frozenset(Can)

    def prepare(self, make: Callable[[], nn.Module], mesh: Any = None) -> nn.Module:
        return make()

    def optimizer(self, policy: Any, net: nn.Module) -> torch.optim.Optimizer:
        return policy.optimizer(net.parameters())

    def forward_backward(
        self, turn: Turn, nets: Mapping[Side, Network], parts: int, scale: Tensor | None = None
    ) -> Terms:
        gradient = partial(self.input_gradient, nets[turn.side].module, scale=scale)
        return _loop.forward_backward(turn, nets, parts, gradient, scale)

    def input_gradient(self, net: nn.Module, out_B: Tensor, x: Tensor, scale: Tensor | None = None) -> Tensor:
        return _loop.input_gradient(out_B, x, scale)

    def finish(self, net: nn.Module, max_norm: float | None, scale: Tensor | None = None) -> Tensor:
        weights = list(net.parameters())
        grads = [p.grad for p in weights if p.grad is not None]
        if scale is not None:
            torch._foreach_mul_(grads, 1 / scale)
        norm = torch.nn.utils.get_total_norm(grads)
        if max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(weights, max_norm, norm)
        return norm

    def total(self, values: Tensor) -> Tensor:
        return values

    def weights(self, net: nn.Module) -> dict[str, Tensor]:
        return dict(net.state_dict())

    def load(self, net: nn.Module, weights: Mapping[str, Tensor]) -> None:
        net.load_state_dict(weights)
