"""Float32 computation inside a network that computes in bf16 or fp16."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def autocast_off(like: Tensor) -> AbstractContextManager[object]:
    """Disable autocast on the device of a tensor, where it is active."""
    device = like.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


def at_least_float32(x: Tensor) -> Tensor:
    """Convert bf16 and fp16 to float32; float32 and float64 stay."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def as_real(x: Tensor) -> Tensor:
    """Return a complex tensor as pairs of real numbers, a view; others unchanged."""
    return torch.view_as_real(x) if x.is_complex() else x


def to_computed_format(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Convert the operands of a convolution or product as autocast does, if it is active."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind) or x.dtype == torch.float64:
        return x, weight, bias
    dtype = torch.get_autocast_dtype(kind)
    return x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
