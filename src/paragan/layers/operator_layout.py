"""Layouts of single layers: padded channels, taps as channels, siblings as one product.

The function, the weights and the names of a layer do not change, so that spectral norm, optimiser,
averages and checkpoints are the same; gradients of any order exist. What changes is the shape of
the convolution or matrix product that a layer computes:

- padded: with more channels, all zero, up to a multiple that suits the device;
- taps: each tap of a convolution with few outputs is an output of one matrix product, whose
  results are shifted and added;
- merged: layers that read the same tensor are one product with the outputs of all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from paragan.core.errors import ConfigError
from paragan.layers.operator_call import OperatorCall, bind_call, run_padded, run_taps


def can_merge(layers: Sequence[nn.Module]) -> bool:
    """Return whether layers that read the same tensor can be one product."""
    kinds = {merge_key(layer) for layer in layers}
    return len(layers) > 1 and len(kinds) == 1 and None not in kinds


def merge_key(layer: Any) -> tuple[Any, ...] | None:
    """Return what siblings have in common; None if a layer cannot be merged."""
    if type(layer).forward is nn.Linear.forward:
        return ("linear", layer.in_features, layer.bias is None)
    if type(layer).forward is not nn.Conv2d.forward or layer.groups != 1:
        return None
    shape = (layer.in_channels, layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    return ("conv2d", *shape, layer.padding_mode, layer.bias is None)


def run_merged(layers: Sequence[nn.Module], x: Tensor) -> list[Tensor]:
    """Compute layers that read `x` as one product; the results do not share memory."""
    first: Any = layers[0]
    weights = [layer.weight for layer in layers]
    biases = [layer.bias for layer in layers if layer.bias is not None]
    together: tuple[Any, Any] = (torch.cat(weights), torch.cat(biases) if biases else None)  # type: ignore[arg-type]
    is_linear = isinstance(first, nn.Linear)
    y = F.linear(x, *together) if is_linear else first._conv_forward(x, *together)
    parts = y.split([len(weight) for weight in weights], x.dim() - 1 if is_linear else 1)  # type: ignore[arg-type]
    return [part.clone() for part in parts]  # layers write to their results in place


def apply_layout(
    net: nn.Module,
    pad: Mapping[str, tuple[int, int]],
    taps: Iterable[str],
    merge: Iterable[Sequence[str]],
    key: str = "layout",
) -> None:
    """Set the layout of layers, by their names in the network.

    pad: channels of input and output. taps: convolutions. merge: groups of siblings. key: of the
    setting, for messages. Raises `ConfigError` for a name that the network does not have, and for
    layers that cannot be merged.
    """
    for name, channels in pad.items():
        _replace(_layer(net, name, key), partial(run_padded, inputs=channels[0], outputs=channels[1]))
    for name in taps:
        _replace(_layer(net, name, key), run_taps)
    for names in merge:
        layers = [_layer(net, name, key) for name in names]
        if not can_merge(layers):
            raise ConfigError(f"{key}.merge: {', '.join(names)} are not layers of one kind; leave them out")
        siblings = _Siblings(layers)
        for number, layer in enumerate(layers):
            layer.forward = partial(siblings.result, number)


def _layer(net: nn.Module, name: str, key: str) -> nn.Module:
    found = dict(net.named_modules()).get(name)
    if found is None or not is_single_layer(found):
        hint = "measure again with train.layout=auto and --fresh"
        raise ConfigError(f"{key}: the network has no layer {name!r} with weights; {hint}, or leave it out")
    return found


def is_single_layer(module: nn.Module) -> bool:
    """Return whether a module has weights, and no modules besides parametrisations of them."""
    children = [name for name, _ in module.named_children()]
    return children in ([], ["parametrizations"]) and next(module.parameters(), None) is not None


def _replace(layer: nn.Module, run: Callable[[OperatorCall], Tensor]) -> None:
    layer.forward = _ReplacedForward(layer, run)


class _ReplacedForward:
    """A layer's forward, with another computation of its convolution or matrix product."""

    def __init__(self, layer: nn.Module, run: Callable[[OperatorCall], Tensor]) -> None:
        self.layer = layer
        self.run = run

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        with _Interception(self.run):
            return type(self.layer).forward(self.layer, *inputs, **named)


class _Interception(TorchFunctionMode):
    """Mode in which a function replaces convolutions and matrix products."""

    def __init__(self, run: Callable[[OperatorCall], Tensor]) -> None:
        super().__init__()
        self._run = run

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = bind_call(func, args, kwargs)
        return func(*args, **(kwargs or {})) if call is None else self._run(call)


class _Siblings:
    """Layers that read the same tensor: the first that is called computes the results of all.

    A layer that is called with another tensor is computed anew, with all others.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self.layers = list(layers)
        self._key: tuple[Any, ...] = ()
        self._results: dict[int, Tensor] = {}

    def result(self, number: int, x: Tensor) -> Tensor:
        """Return the result of one layer."""
        key = (x, x._version, torch.is_grad_enabled())
        is_known = bool(self._key) and self._key[0] is x and self._key[1:] == key[1:]
        if not is_known or number not in self._results:
            self._results = dict(enumerate(run_merged(self.layers, x)))
            self._key = key
        y = self._results.pop(number)
        if not self._results:
            self._key = ()
        return y

    def __deepcopy__(self, memo: dict[int, Any]) -> _Siblings:
        copied = memo[id(self)] = _Siblings(())
        copied.layers = copy.deepcopy(self.layers, memo)
        return copied
