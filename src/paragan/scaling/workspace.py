"""Memory that a convolution of the CPU needs besides its operands and results.

torch passes a convolution on as channels last (NHWC) or contiguous (NCHW), and copies operands of
other strides first. oneDNN computes NHWC in place, and copies weights always. NCHW maps it copies
into blocks of 16 channels, and its result out of them. At one thread torch multiplies by 1x1
kernels itself.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

_BLOCK = 16  # channels of a block
_FEW = 8  # channels from which on gradients of weights have blocks of 16
_IN_PLACE = 16  # images and input channels from which on maps are copied
_LARGE_KERNEL = 1 << 19  # taps of a kernel as large as its map, from which on it is copied


def workspace_bytes(func: Any, args: Any, outputs: Any) -> int:
    """Return the bytes that an operation allocates and frees; 0 for all but CPU convolutions."""
    if func is torch.ops.aten.convolution.default:
        operands = (args[0], args[1], outputs)
        settings = args[3:9]
        mask = None
    elif func is torch.ops.aten.convolution_backward.default:
        operands = (args[1], args[2], args[0])
        settings = args[4:10]
        mask = args[10]
    else:
        return 0
    if not args[0].is_cpu:
        return 0
    layout = torch.channels_last if any(map(_is_channels_last, operands[:2])) else torch.contiguous_format
    copied = sum(t.nbytes for t in operands if not _has_layout(t, layout))
    if layout is torch.channels_last:
        return copied + _blocked_bytes(operands[1])
    if _is_own_product(operands[0], operands[1], settings):
        return copied + (operands[0].nbytes if mask is not None and mask[0] else 0)
    return copied + _blocks_bytes(*operands, bool(settings[3]), mask)


def _blocks_bytes(x: Tensor, weight: Tensor, y: Tensor, transposed: bool, mask: Any) -> int:
    """Return the bytes of blocks. mask: gradients of input and weights; None: a forward pass."""
    if mask is None:
        if y.shape[2:].numel() == 1 and x.shape[2:] == weight.shape[2:]:
            return _map_sized_bytes(weight)
        return _pass_bytes(x, weight, y, may_read_in_place=not transposed)
    found = [0]
    if mask[0]:
        found.append(_pass_bytes(y, weight, x, may_read_in_place=transposed))
    if mask[1]:
        found.append(sum(_blocked_bytes(t, _FEW if t.shape[1] <= _FEW else _BLOCK) for t in (x, y)))
    return max(found)


def _pass_bytes(source: Tensor, weight: Tensor, result: Tensor, may_read_in_place: bool) -> int:
    """Return the most bytes of blocks besides the result, into which the last ones are copied."""
    blocks = _blocked_bytes(result)
    if may_read_in_place and source.shape[1] < _IN_PLACE:
        rows = -(-weight.shape[0] // _BLOCK) * _BLOCK
        read = rows * weight[0].numel() * weight.element_size()
    else:
        read = _blocked_bytes(source) + _blocked_bytes(weight)
    return max(read + blocks - result.nbytes, blocks)


def _map_sized_bytes(weight: Tensor) -> int:
    """Return the bytes of blocks of a kernel as large as its map: a product, if it is small."""
    if weight[0].numel() < _LARGE_KERNEL:
        return 0
    rows = -(-weight.shape[0] // _BLOCK) * _BLOCK
    return _blocked_bytes(weight) // weight.shape[0] * rows


def _is_own_product(x: Tensor, weight: Tensor, settings: Any) -> bool:
    """Return whether torch computes a convolution without oneDNN. settings: from stride on."""
    is_plain = weight.shape[2:].numel() == 1 and max(*settings[0], *settings[2]) == 1
    return is_plain and len(x) < _IN_PLACE and torch.get_num_threads() == 1


def _is_channels_last(tensor: Tensor) -> bool:
    return _has_layout(tensor, torch.channels_last) and not tensor.is_contiguous()


def _has_layout(tensor: Tensor, layout: torch.memory_format) -> bool:
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=layout)


def _blocked_bytes(tensor: Tensor, block: int = _BLOCK) -> int:
    channels = -(-tensor.shape[1] // block) * block
    return tensor.shape[0] * channels * prod(tensor.shape[2:]) * tensor.element_size()
