"""Which library multiplies the matrices of dense layers, in float32 on a processor.

Torch takes MKL, which reaches about half of what a processor of AMD with AVX-512 can do. oneDNN, which torch takes for
convolutions, reaches all of it (docs/journal.md). No setting of torch changes the library and keeps float32.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import ConfigError

Library = Literal["native", "onednn"]
_LEAST = 1 << 20  # multiplications; smaller products are over before oneDNN's are prepared


def available(device: torch.device) -> bool:
    return device.type == "cpu" and torch.backends.mkldnn.is_available() and hasattr(_ops(), "_linear_pointwise")


def libraries(choice: Library | None, net: nn.Module, device: torch.device) -> tuple[Library, ...]:
    """What `auto` may turn out to be, for a network whose weights are dense layers' for the most part."""
    if choice is not None:
        return (choice,)
    dense = sum(layer.weight.numel() for layer in net.modules() if type(layer) is nn.Linear)
    if not available(device) or 2 * dense < sum(weight.numel() for weight in net.parameters()):
        return ("native",)
    return ("native", "onednn")


def multiply_by(net: nn.Module, library: Library | None, device: torch.device) -> None:
    """From now on. `ConfigError` where this device has no such library."""
    if library != "onednn":
        return
    if not available(device):
        raise ConfigError(f"matmul: found onednn on the device {device.type}, which has none; set matmul=native")
    for layer in net.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = Linear


class Linear(nn.Linear):
    """(B, inputs) to (B, outputs), by oneDNN where that is float32."""

    def forward(self, x: Tensor) -> Tensor:
        plain = x.dim() != 2 or {x.dtype, self.weight.dtype} != {torch.float32} or torch.is_autocast_enabled("cpu")
        if plain or torch.compiler.is_compiling():  # the compiler has ways of its own, and no rule for this one
            return super().forward(x)
        return cast(Tensor, MatmulBackend.apply(x, self.weight, self.bias))  # type: ignore[no-untyped-call]


class MatmulBackend(torch.autograd.Function):
    """a (M, K) and b (N, K) to a b^T (M, N), and a bias (N,) added; derivatives are products again, to any order."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(a, b)
        if a.shape[0] * b.numel() < _LEAST:
            return F.linear(a, b, bias)
        return cast(Tensor, _ops()._linear_pointwise(a, b, bias, "none", [], ""))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        of_a, of_b, of_bias = (*ctx.needs_input_grad, False)[:3]
        return (
            MatmulBackend.apply(gradient, b.t()) if of_a else None,  # type: ignore[no-untyped-call]
            MatmulBackend.apply(gradient.t(), a.t()) if of_b else None,  # type: ignore[no-untyped-call]
            gradient.sum(0) if of_bias else None,
        )


def _ops() -> Any:
    """What torch has registered of oneDNN, by the name of its compiler's own use: no public call is oneDNN's."""
    return getattr(torch.ops, "mkldnn", None)
