"""Backward passes that compute the gradients of inputs at once, and those of weights later.

The rank before this one in a pipeline waits for the gradient of its output, not for those of this
rank's weights. Source: Qi et al. 2024, Zero Bubble Pipeline Parallelism (arXiv 2401.10241, 2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from paragan.layers.operator_call import OperatorCall, bind_call, in_computed_format


@dataclass(frozen=True)
class _Weight:
    """A weight or bias as its layer passes it, and the leaf that the operator gets in its place."""

    tensor: Tensor
    leaf: Tensor


class SplitBackward(TorchFunctionMode):
    """Mode in which convolutions and matrix products leave the gradients of weights to `finish`.

    Under a second derivative (`create_graph`) a backward computes the gradients of inputs with their
    graph and none of weights. Weights that are computed from activations are not split, since the
    gradients of inputs wait for theirs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._later: list[tuple[OperatorCall, Sequence[_Weight | None], Tensor]] = []
        self._of_second_order: list[_Weight] = []
        self._inputs: set[Any] = set()

    def of(self, inputs: Sequence[Tensor]) -> SplitBackward:
        """Return the mode, for layers that run on these tensors."""
        self._inputs = {tensor.grad_fn for tensor in inputs if tensor.grad_fn is not None}
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._inputs = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        call = bind_call(func, args, kwargs)
        if call is None or not self._can_split(call):
            return func(*args, **(kwargs or {}))
        weight = self._weight(call.weight)
        bias = None if call.bias is None else self._weight(call.bias)
        leaves = (weight.leaf, None if bias is None else bias.leaf)
        call = in_computed_format(OperatorCall(call.name, call.x, *leaves, _settings(call)))
        token = torch.empty(0, requires_grad=True)  # the input may need no gradient
        return _Split.apply(self, call, (weight, bias), token, call.x)

    def finish(self) -> None:
        """Compute the gradients that backward passes left, and add them to those of the weights."""
        found: dict[int, tuple[Tensor, Tensor]] = {}
        for one in self._of_second_order:
            if one.leaf.grad is not None:
                _add(found, one.tensor, one.leaf.grad)
                one.leaf.grad = None
        for call, pair, grad in self._later:
            for each, gradient in zip(pair, _weight_gradients(call, grad), strict=True):
                if each is not None and each.tensor.requires_grad:
                    _add(found, each.tensor, gradient)
        self.clear()
        if found:
            weights, gradients = zip(*found.values(), strict=True)
            torch.autograd.backward(weights, gradients)

    def clear(self) -> None:
        """Forget what backward passes left."""
        self._later.clear()
        self._of_second_order.clear()

    def _can_split(self, call: OperatorCall) -> bool:
        if not torch.is_grad_enabled() or not call.weight.requires_grad:
            return False
        if isinstance(call.settings.get("padding"), str) or self._depends(call.weight):
            return False
        return call.bias is None or not self._depends(call.bias)

    def _depends(self, weight: Tensor) -> bool:
        """Return whether a weight is made from activations, as in modulated convolutions."""
        todo = [weight.grad_fn]
        seen = set()
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            if node in self._inputs or getattr(node, "mode", None) is self:  # of a `_Split`
                return True
            seen.add(node)
            todo += [following for following, _ in node.next_functions]
        return False

    def _weight(self, tensor: Tensor) -> _Weight:
        leaf = tensor.detach().requires_grad_(tensor.requires_grad)
        if leaf.requires_grad:  # without a reference to the leaf, which would hold itself
            leaf.register_post_accumulate_grad_hook(lambda it: self._of_second_order.append(_Weight(tensor, it)))
        return _Weight(tensor, leaf)


class _Split(torch.autograd.Function):
    """One operator, whose backward computes the gradient of the input only."""

    @staticmethod
    def forward(ctx: Any, mode: SplitBackward, call: OperatorCall, pair: Any, _: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, call.weight)
        ctx.mode = mode
        ctx.call = (call.name, call.settings)
        ctx.pair = pair
        return call.run()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        name, settings = ctx.call
        call = OperatorCall(name, x, weight, None, settings)
        if not torch.is_grad_enabled():
            ctx.mode._later.append((call, ctx.pair, grad))
        needs = ctx.needs_input_grad[4]
        return None, None, None, None, _input_gradient(call, grad) if needs else None


def _settings(call: OperatorCall) -> dict[str, Any]:
    """Return the settings of a convolution in full."""
    if call.name == "linear":
        return {}
    defaults = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    defaults = {**defaults, "output_padding": 0} if call.is_transposed else defaults
    return {**defaults, **call.settings}


def _input_gradient(call: OperatorCall, grad: Tensor) -> Tensor:
    if call.name == "linear":
        return grad @ call.weight
    return _convolution_backward(call, grad, (True, False, False))[0]


def _weight_gradients(call: OperatorCall, grad: Tensor) -> Sequence[Tensor]:
    """Return the gradients of weight and bias."""
    if call.name == "linear":
        grad_NO = grad.reshape(-1, grad.shape[-1])
        return grad_NO.T @ call.x.reshape(-1, call.x.shape[-1]), grad_NO.sum(0)
    return _convolution_backward(call, grad, (False, True, True))[1:]


def _convolution_backward(call: OperatorCall, grad: Tensor, mask: Sequence[bool]) -> Sequence[Tensor]:
    axes = call.x.dim() - 2

    def full(name: str) -> list[int]:
        value = call.settings.get(name, 0)
        values = list(value) if isinstance(value, (tuple, list)) else [value]
        return values * (axes // len(values))

    shape = (full("stride"), full("padding"), full("dilation"))
    more = (call.is_transposed, full("output_padding"), call.settings["groups"])
    tensors = (grad, call.x, call.weight, [grad.shape[1]])
    found: Sequence[Tensor] = torch.ops.aten.convolution_backward(*tensors, *shape, *more, mask)
    return found


def _add(found: dict[int, tuple[Tensor, Tensor]], weight: Tensor, gradient: Tensor) -> None:
    gradient = gradient.to(weight.dtype)
    if id(weight) in found:
        found[id(weight)][1].add_(gradient)
    else:
        found[id(weight)] = (weight, gradient)
