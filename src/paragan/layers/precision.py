"""Where single precision is kept although the network around computes in bf16 or fp16."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def autocast_off(like: Tensor) -> AbstractContextManager[object]:
    """No autocast inside, on the device of this tensor.

    Free where none is active; the meta device knows none.
    """
    device = like.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


def at_least_float32(x: Tensor) -> Tensor:
    """At least float32: bf16 and fp16 become float32, float64 stays."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
