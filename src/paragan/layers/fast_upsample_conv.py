"""A 3x3 convolution after nearest doubling, with 9 products per pixel of the smaller map.

Along one axis, with d[i] = x[i] - x[i - 1] and s the sum of the weights w of a row:

    y[2i]     = w0 x[i - 1] + (w1 + w2) x[i] = s x[i] - w0 d[i]
    y[2i + 1] = (w0 + w1) x[i] + w2 x[i + 1] = s x[i] + w2 d[i + 1]

Both share s x[i]: three products for two outputs, so nine for four in the plane, where summed taps
take 16 and the plain order 36 (the idea of short filters in S. Winograd, "Arithmetic complexity of
computations", 1980). It needs sums over maps, so it pays only for many channels; and differences,
so it is limited to float32 and float64.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.layers.precision import autocast_off

# Fewest channels for a gain: 256 are 1.4 to 1.7 times as fast (batch 32, 4x4 to 16x16).
_CHANNELS = 256


def is_faster(x: Tensor) -> bool:
    """Return whether `upsample_conv` is faster: on CPU, with many channels, channels last."""
    there = x.is_cpu and x.shape[1] >= _CHANNELS and x.stride(1) == 1
    there = there and not torch.compiler.is_compiling() and not torch.is_autocast_enabled("cpu")
    return there and x.dtype in (torch.float32, torch.float64)


def upsample_conv(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute `conv3x3(F.interpolate(x, scale_factor=2))`; weight: (out, in, 3, 3)."""
    x_BHWC = x.permute(0, 2, 3, 1)
    across = _Differences.apply(x_BHWC, 2)
    seen = (x_BHWC, across, _Differences.apply(x_BHWC, 1), _Differences.apply(across, 1))
    once = (bias, None, None, None)  # every output has one part of the first map
    convs = zip(seen, _kernels(weight), once, strict=True)
    maps = [F.conv2d(t.permute(0, 3, 1, 2), w, b) for t, w, b in convs]
    y: Tensor = _Interleave.apply(*(m.permute(0, 2, 3, 1) for m in maps))
    return y


def _kernels(weight: Tensor) -> tuple[Tensor, ...]:
    """Return 1x1 kernels for x and its differences across, down and both; even outputs first."""
    with autocast_off(weight):
        rule = torch.zeros(3, 3, dtype=weight.dtype, device=weight.device)
        rule[0] = 1
        rule[1, 0] = -1
        rule[2, 2] = 1
        both = torch.kron(rule, rule).unflatten(0, (3, 3))  # axes: tap down, tap across
        rows = torch.cat([both[0, :1], both[0, 1:], both[1:, 0], both[1:, 1:].flatten(0, 1)])
        mixed = (weight.flatten(2) @ rows.T).permute(2, 0, 1).flatten(0, 1)[:, :, None, None]
        out = weight.shape[0]
        return mixed.split([out, 2 * out, 2 * out, 4 * out])


class _Differences(torch.autograd.Function):
    """Differences x[i] - x[i - 1] along an axis of length n, n + 1 of them; x is 0 outside."""

    @staticmethod
    def forward(x: Tensor, axis: int) -> Tensor:
        count = x.shape[axis]
        size = list(x.shape)
        size[axis] = count + 1
        steps = x.new_empty(size)
        steps.narrow(axis, 0, 1).copy_(x.narrow(axis, 0, 1))
        last = count - 1
        torch.sub(x.narrow(axis, 1, last), x.narrow(axis, 0, last), out=steps.narrow(axis, 1, last))
        torch.neg(x.narrow(axis, last, 1), out=steps.narrow(axis, count, 1))
        return steps

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.axis = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        count = grad.shape[ctx.axis] - 1
        return grad.narrow(ctx.axis, 0, count) - grad.narrow(ctx.axis, 1, count), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, axis: int) -> tuple[Tensor, int]:
        (x,) = _merge_batches(info, in_dims[:1], x)
        return _Differences.apply(x, axis).unflatten(0, (info.batch_size, -1)), 0


class _Interleave(torch.autograd.Function):
    """Sums of the nine product maps, (B, H or H + 1, W or W + 1, ...), as y (B, out, 2H, 2W)."""

    @staticmethod
    def forward(whole: Tensor, across: Tensor, down: Tensor, both: Tensor) -> Tensor:
        batch, height, width, out = whole.shape
        # returned without a view, so that callers can write to it in place
        size = (batch, out, 2 * height, 2 * width)
        made = torch.empty(size, dtype=whole.dtype, device=whole.device, memory_format=torch.channels_last)
        y = made.permute(0, 2, 3, 1).view(batch, height, 2, width, 2, out)
        for j in (0, 1):
            column = whole + across[:, :, j : j + width, j * out : (j + 1) * out]
            for i in (0, 1):
                rest = both[:, i : i + height, j : j + width].narrow(3, (2 * i + j) * out, out)
                upper = down[:, i : i + height, :, i * out : (i + 1) * out]
                torch.add(upper, rest, out=y[:, :, i, :, j])
                y[:, :, i, :, j].add_(column)
        return made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Save nothing: the map is linear."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        found: tuple[Tensor, ...] = _Deinterleave.apply(grad)
        return found

    @staticmethod
    def vmap(info: Any, in_dims: Any, *maps: Tensor) -> tuple[Tensor, int]:
        merged = _merge_batches(info, in_dims, *maps)
        return _Interleave.apply(*merged).unflatten(0, (info.batch_size, -1)), 0


class _Deinterleave(torch.autograd.Function):
    """Transpose of `_Interleave`."""

    @staticmethod
    def forward(y: Tensor) -> tuple[Tensor, ...]:
        batch = len(y)
        out = y.shape[1]
        height = y.shape[2] // 2
        width = y.shape[3] // 2
        y = y.permute(0, 2, 3, 1).reshape(batch, height, 2, width, 2, out)
        across = y.new_empty(batch, height, width + 1, 2 * out)
        down = y.new_empty(batch, height + 1, width, 2 * out)
        both = y.new_empty(batch, height + 1, width + 1, 4 * out)
        for i in (0, 1):
            mine = slice(i * out, (i + 1) * out)
            beyond_h = 0 if i else height
            beyond_w = 0 if i else width
            across[:, :, beyond_w, mine] = 0
            down[:, beyond_h, :, mine] = 0
            torch.add(y[:, :, 0, :, i], y[:, :, 1, :, i], out=across[:, :, i : i + width, mine])
            torch.add(y[:, :, i, :, 0], y[:, :, i, :, 1], out=down[:, i : i + height, :, mine])
            for j in (0, 1):
                corner = both.narrow(3, (2 * i + j) * out, out)
                corner[:, beyond_h] = 0
                corner[:, :, 0 if j else width] = 0
                corner[:, i : i + height, j : j + width] = y[:, :, i, :, j]
        return down[:, :height, :, :out] + down[:, 1:, :, out:], across, down, both

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save nothing: the map is linear."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # type: ignore[override]
        found: Tensor = _Interleave.apply(*grads)
        return found

    @staticmethod
    def vmap(info: Any, in_dims: Any, y: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        maps = _Deinterleave.apply(*_merge_batches(info, in_dims, y))
        return tuple(m.unflatten(0, (info.batch_size, -1)) for m in maps), (0,) * len(maps)


def _merge_batches(info: Any, in_dims: Any, *maps: Tensor) -> list[Tensor]:
    """Fold the vmapped axis into the batch axis."""
    stacked = [
        m.expand(info.batch_size, *m.shape) if at is None else m.movedim(at, 0)
        for m, at in zip(maps, in_dims, strict=True)
    ]
    return [m.flatten(0, 1) for m in stacked]
