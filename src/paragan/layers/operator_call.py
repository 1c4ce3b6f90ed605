"""One convolution or matrix product as data, computed as written, with padded channels or by its taps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.layers.precision import autocast_off

_CONV = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_SIGNATURES: Mapping[Any, tuple[str, ...]] = {
    **{torch.conv1d: _CONV, torch.conv2d: _CONV},
    **{torch.conv_transpose1d: _TRANSPOSED, torch.conv_transpose2d: _TRANSPOSED},
    F.linear: ("input", "weight", "bias"),
}
FUNCTIONS = {function.__name__: function for function in _SIGNATURES}


@dataclass(frozen=True)
class OperatorCall:
    """One call of a convolution or matrix product: name of the function, tensors and settings."""

    name: str
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    settings: Mapping[str, Any]

    def run(self) -> Tensor:
        """Compute it as written."""
        y: Tensor = FUNCTIONS[self.name](self.x, self.weight, self.bias, **self.settings)
        return y

    @property
    def axis(self) -> int:
        """Axis of the channels of input and output."""
        return self.x.dim() - 1 if self.name == "linear" else 1

    @property
    def is_transposed(self) -> bool:
        """Whether axis 0 of the weight is that of the inputs."""
        return self.name.startswith("conv_transpose")


def bind_call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> OperatorCall | None:
    """Return the call of a torch function; None if it is no convolution or matrix product."""
    if function not in _SIGNATURES:
        return None
    settings = {**dict(zip(_SIGNATURES[function], args, strict=False)), **(kwargs or {})}
    tensors = (settings.pop("input"), settings.pop("weight"), settings.pop("bias", None))
    return OperatorCall(function.__name__, *tensors, settings)


def run_padded(call: OperatorCall, inputs: int, outputs: int) -> Tensor:
    """Compute a call with so many channels of input and output; the additional ones are zero."""
    call = in_computed_format(call)
    of_inputs = 0 if call.is_transposed else 1
    num_outputs = call.weight.shape[1 - of_inputs]
    if call.settings.get("groups", 1) != 1 or inputs < call.weight.shape[of_inputs] or outputs < num_outputs:
        found = f"{call.weight.shape[of_inputs]} inputs, {num_outputs} outputs"
        raise ConfigError(f"layout.pad: [{inputs}, {outputs}] does not fit a layer of {found}; pass at least those")
    weight = _resized(_resized(call.weight, of_inputs, inputs), 1 - of_inputs, outputs)
    bias = None if call.bias is None else _resized(call.bias, 0, outputs)
    padded = replace(call, x=_resized(call.x, call.axis, inputs), weight=weight, bias=bias)
    return _resized(padded.run(), call.axis, num_outputs)


def can_use_taps(call: OperatorCall) -> bool:
    """Return whether `run_taps` computes this call: a convolution with stride 1 of the same size."""
    if call.name != "conv2d" or call.settings.get("groups", 1) != 1:
        return False
    kernel = call.weight.shape[2:]
    same = tuple(side // 2 for side in kernel)
    steps = (_pair(call.settings.get("stride", 1)), _pair(call.settings.get("dilation", 1)))
    is_same = all(side % 2 for side in kernel) and _pair(call.settings.get("padding", 0)) == same
    return is_same and kernel != (1, 1) and steps == ((1, 1), (1, 1))


def run_taps(call: OperatorCall) -> Tensor:
    """Compute a convolution as one product with all its taps as outputs; sums are in float32."""
    if not can_use_taps(call):
        raise ConfigError("layout.taps: a layer is no convolution with stride 1 of the same size; leave it out")
    call = in_computed_format(call)
    height, width = call.x.shape[2:]
    kernel = call.weight.shape[2:]
    # an input pixel adds to the outputs around it: taps in reverse order
    taps = call.weight.flip(2, 3).permute(0, 2, 3, 1).flatten(0, 2)
    products = (call.x.permute(0, 2, 3, 1).flatten(1, 2) @ taps.T).transpose(1, 2)
    with autocast_off(products):
        wide = products.to(torch.promote_types(products.dtype, torch.float32))
        y = F.fold(wide, (height, width), kernel, padding=tuple(side // 2 for side in kernel))
        y = y.to(products.dtype)
        return y if call.bias is None else y + call.bias.to(y.dtype)[:, None, None]


def in_computed_format(call: OperatorCall) -> OperatorCall:
    """Return the call with tensors in autocast's format, so that copies are of that format."""
    kind = call.x.device.type
    if not torch.is_autocast_enabled(kind) or call.x.dtype == torch.float64:
        return call
    dtype = torch.get_autocast_dtype(kind)
    bias = None if call.bias is None else call.bias.to(dtype)
    return replace(call, x=call.x.to(dtype), weight=call.weight.to(dtype), bias=bias)


def _resized(tensor: Tensor, axis: int, size: int) -> Tensor:
    """Return a tensor with zeros added, or the last values left out, along an axis."""
    change = size - tensor.shape[axis]
    if change == 0:
        return tensor
    return F.pad(tensor, (0, 0) * (tensor.dim() - 1 - axis) + (0, change))


def _pair(value: Any) -> tuple[Any, ...]:
    return tuple(value) * (2 // len(value)) if isinstance(value, (tuple, list)) else (value, value)
