"""A network whose linear layers hold the weights of many cells, and multiply the rows of each by its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def with_batched_linear(net: nn.Module, stacked: Mapping[str, Tensor], num: int) -> nn.Module | None:
    """A copy for rows (cell by cell, equally many of each) of `num` cells; None where layers of other kinds have
    weights. stacked: (num, …) by the parameter's name.
    """
    layers = {
        name: module for name, module in net.named_modules() if next(module.parameters(recurse=False), None) is not None
    }
    names = {f"{layer}.{name}" if layer else name for layer, module in layers.items() for name in module._parameters}
    if any(type(module) is not nn.Linear for module in layers.values()) or not stacked.keys() <= names:
        return None
    whole = copy.deepcopy(net)
    for layer in layers:
        module = whole.get_submodule(layer)
        held = {name: stacked.get(f"{layer}.{name}" if layer else name) for name in module._parameters}
        if any((held[name] is None) != (value is None) for name, value in module._parameters.items()):
            return None  # tied weights
        module.__class__, module._parameters = _BatchedLinear, {}
        module.__dict__.update(held, num=num)
    return whole


class _BatchedLinear(nn.Linear):
    """weight, bias: of all cells; nobody's parameters here. num: cells."""

    num: int

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = _BatchedLinearFunction.apply(input.flatten(0, -2), self.weight, self.bias)
        return found if input.dim() == 2 else found.unflatten(0, input.shape[:-1])


class _BatchedLinearFunction(torch.autograd.Function):
    """x W' + b, each cell's rows by its own weights.

    Torch's own ops give the weights' gradients transposed, and a copy of each to turn it; a view of their result would
    cost two more where an activation works in place.
    """

    @staticmethod
    def forward(ctx: Any, x_RI: Tensor, weight_COI: Tensor, bias_CO: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_RI, weight_COI)
        num, outputs, _ = weight_COI.shape
        found_RO = x_RI.new_empty(len(x_RI), outputs)
        x_CNI, found_CNO = x_RI.unflatten(0, (num, -1)), found_RO.unflatten(0, (num, -1))
        if bias_CO is None:
            torch.bmm(x_CNI, weight_COI.mT, out=found_CNO)
        else:
            torch.baddbmm(bias_CO.unsqueeze(1), x_CNI, weight_COI.mT, out=found_CNO)
        return found_RO

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_RI, weight_COI = ctx.saved_tensors
        grad_CNO, x_CNI = (value.unflatten(0, (len(weight_COI), -1)) for value in (grads[0], x_RI))
        return (
            torch.bmm(grad_CNO, weight_COI).flatten(0, 1) if ctx.needs_input_grad[0] else None,
            torch.bmm(grad_CNO.mT, x_CNI) if ctx.needs_input_grad[1] else None,
            grad_CNO.sum(1) if ctx.needs_input_grad[2] else None,
        )
