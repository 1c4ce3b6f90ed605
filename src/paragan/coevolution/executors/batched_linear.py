"""Network whose linear layers apply the weights of each of many cells to the rows of that cell."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def with_batched_linear(
    net: nn.Module,
    stacked: Mapping[str, Tensor],
    num: int,
) -> nn.Module | None:
    """Copy a network for batches with equally many rows of each of `num` cells, cell by cell.

    Returns None if layers other than `nn.Linear` have weights, or weights are tied. stacked:
    parameters by name, (num, …).
    """
    layers = {}
    for name, module in net.named_modules():
        if next(module.parameters(recurse=False), None) is not None:
            layers[name] = module
    names = {name for name, _ in net.named_parameters(remove_duplicate=False)}
    is_linear = all(type(module) is nn.Linear for module in layers.values())
    if not is_linear or not stacked.keys() <= names:
        return None
    whole = copy.deepcopy(net)
    for layer in layers:
        module = whole.get_submodule(layer)
        parameters = {n: stacked.get(f"{layer}.{n}" if layer else n) for n in module._parameters}
        if any((parameters[n] is None) != (p is None) for n, p in module._parameters.items()):
            return None  # tied weights
        module.__class__ = _BatchedLinear
        module._parameters = {}
        module.__dict__.update(parameters, num=num)
    return whole


class _BatchedLinear(nn.Linear):
    """Linear layer of `num` cells. weight, bias: of all cells, not registered as parameters."""

    num: int

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = _BatchedLinearFunction.apply(input.flatten(0, -2), self.weight, self.bias)
        return result if input.dim() == 2 else result.unflatten(0, input.shape[:-1])


class _BatchedLinearFunction(torch.autograd.Function):
    """x W' + b with the weights of each row's cell.

    torch's ops return transposed weight gradients, which need a copy each; a view of their result
    would cost two more copies where an activation works in place.
    """

    @staticmethod
    def forward(ctx: Any, x_RI: Tensor, weight_COI: Tensor, bias_CO: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_RI, weight_COI)
        num, outputs, _ = weight_COI.shape
        y_RO = x_RI.new_empty(len(x_RI), outputs)
        x_CNI = x_RI.unflatten(0, (num, -1))
        y_CNO = y_RO.unflatten(0, (num, -1))
        if bias_CO is None:
            torch.bmm(x_CNI, weight_COI.mT, out=y_CNO)
        else:
            torch.baddbmm(bias_CO.unsqueeze(1), x_CNI, weight_COI.mT, out=y_CNO)
        return y_RO

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_RI, weight_COI = ctx.saved_tensors
        num = len(weight_COI)
        grad_CNO = grads[0].unflatten(0, (num, -1))
        x_CNI = x_RI.unflatten(0, (num, -1))
        return (
            torch.bmm(grad_CNO, weight_COI).flatten(0, 1) if ctx.needs_input_grad[0] else None,
            torch.bmm(grad_CNO.mT, x_CNI) if ctx.needs_input_grad[1] else None,
            grad_CNO.sum(1) if ctx.needs_input_grad[2] else None,
        )
