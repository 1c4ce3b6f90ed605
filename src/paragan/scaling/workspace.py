"""Memory that a convolution of the CPU needs besides its operands.

torch passes a convolution on as channels last (NHWC) or contiguous (NCHW), and copies operands of
other strides first. oneDNN computes NHWC in place. It copies NCHW operands into blocks of 16
channels, and weights always.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

_BLOCK = 16  # channels of a block


def workspace_bytes(func: Any, args: Any, outputs: Any) -> int:
    """Return the bytes that an operation allocates and frees; 0 for all but CPU convolutions."""
    if func is torch.ops.aten.convolution.default:
        operands = (args[0], args[1], outputs)
    elif func is torch.ops.aten.convolution_backward.default:
        operands = (args[1], args[2], args[0])
    else:
        return 0
    return _copied_bytes(*operands) if args[0].is_cpu else 0


def _copied_bytes(x: Tensor, weight: Tensor, y: Tensor) -> int:
    is_last = any(_is_channels_last(operand) for operand in (x, weight))
    layout = torch.channels_last if is_last else torch.contiguous_format
    copied = [t for t in (x, weight, y) if not _has_layout(t, layout)]
    blocked = [weight] if is_last else [x, weight, y]
    return sum(t.nbytes for t in copied) + sum(map(_blocked_bytes, blocked))


def _is_channels_last(tensor: Tensor) -> bool:
    return _has_layout(tensor, torch.channels_last) and not tensor.is_contiguous()


def _has_layout(tensor: Tensor, layout: torch.memory_format) -> bool:
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=layout)


def _blocked_bytes(tensor: Tensor) -> int:
    channels = -(-tensor.shape[1] // _BLOCK) * _BLOCK
    return tensor.shape[0] * channels * prod(tensor.shape[2:]) * tensor.element_size()
