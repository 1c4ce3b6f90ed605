"""Convolutions that compute with more channels, all zero, up to a multiple that suits the device.

Weights, names and function of a layer do not change. A padded copy exists only inside of a call, so
that spectral norm, optimiser, averages and checkpoints never see it, and gradients of any order exist.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from paragan.layers.precision import to_computed_format

_FUNCTIONS = (torch.conv1d, torch.conv2d, torch.conv_transpose1d, torch.conv_transpose2d)
_GROUPS = 3  # position after the tensors, in the arguments of all of them
_MAX_WORK = 2  # of a padded convolution, in the work of the plain one


def pad_channels(net: nn.Module, multiple: int) -> int:
    """Let convolutions compute with channels padded to a multiple; return their number.

    Others stay as written: those that would have more than twice the work, and those in groups.
    """
    layers = [layer for layer in net.modules() if _gains_from(layer, multiple)]
    for layer in layers:
        layer.forward = partial(_run_padded, layer, multiple)  # type: ignore[method-assign]
    return len(layers)


def _gains_from(layer: nn.Module, multiple: int) -> bool:
    """Return whether a layer has a kernel that is worth padding, and no layers inside of it."""
    if not {name for name, _ in layer.named_children()} <= {"parametrizations"}:
        return False
    kernels = [weight for weight in layer.parameters() if weight.dim() in (3, 4)]
    return bool(kernels) and getattr(layer, "groups", 1) == 1 and _is_worth_it(kernels[0], multiple)


def _is_worth_it(kernel: Tensor, multiple: int) -> bool:
    before = kernel.shape[0] * kernel.shape[1]
    after = _filled(kernel.shape[0], multiple) * _filled(kernel.shape[1], multiple)
    return before < after <= _MAX_WORK * before


def _filled(channels: int, multiple: int) -> int:
    return -(-channels // multiple) * multiple


def _run_padded(layer: nn.Module, multiple: int, *inputs: Any, **named: Any) -> Any:
    with _Padding(multiple):
        return type(layer).forward(layer, *inputs, **named)


class _Padding(TorchFunctionMode):
    """Mode in which convolutions are padded: of any class of layer, also with a computed kernel."""

    def __init__(self, multiple: int) -> None:
        super().__init__()
        self.multiple = multiple

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        run = partial(_padded, func, self.multiple) if func in _FUNCTIONS else func
        return run(*args, **(kwargs or {}))


def _padded(
    conv: Any, multiple: int, input: Tensor, weight: Tensor, bias: Tensor | None = None, *rest: Any, **named: Any
) -> Tensor:
    """Compute a convolution with padded channels. The names of arguments are torch's."""
    groups = rest[_GROUPS] if len(rest) > _GROUPS else named.get("groups", 1)
    if groups != 1 or not _is_worth_it(weight, multiple):
        return conv(input, weight, bias, *rest, **named)
    input, weight, bias = to_computed_format(input, weight, bias)  # the copies, too
    in_axis, out_axis = (0, 1) if conv in (torch.conv_transpose1d, torch.conv_transpose2d) else (1, 0)
    kernel = _resized(weight, in_axis, _filled(weight.shape[in_axis], multiple))
    kernel = _resized(kernel, out_axis, _filled(weight.shape[out_axis], multiple))
    bias = None if bias is None else _resized(bias, 0, kernel.shape[out_axis])
    channel_axis = input.dim() - weight.dim() + 1  # an input may have no batch axis
    y = conv(_resized(input, channel_axis, kernel.shape[in_axis]), kernel, bias, *rest, **named)
    return _resized(y, channel_axis, weight.shape[out_axis])


def _resized(tensor: Tensor, axis: int, size: int) -> Tensor:
    """Return a tensor with zeros added, or the last values left out, along an axis."""
    change = size - tensor.shape[axis]
    return F.pad(tensor, (0, 0) * (tensor.dim() - 1 - axis) + (0, change)) if change else tensor
