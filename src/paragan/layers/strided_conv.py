"""4x4 convolutions of stride two as one matrix product, for maps smaller than their weights.

Near the middle of a U-Net most time goes into reordering weights: a convolution converts them to an
internal layout and back at every call. A matrix product reads them unchanged: at batch 1, forward
and backward, 1024 to 512 channels at 4x4 take a fifth of the time, 512 to 512 at 8x8 a third.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DownConv4x4(nn.Conv2d):
    """4x4 convolution of stride two without bias: (B, in, 2H, 2W) to (B, out, H, W)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 4, stride=2, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if not _is_faster_as_product(x, self.weight):
            return super().forward(x)
        matrix, is_channels_last = _matrix(self.weight)
        patches = _Patches.apply(x.permute(0, 2, 3, 1))
        y = (patches if is_channels_last else patches.movedim(5, 3)).flatten(3) @ matrix.T
        return _to_layout(y, is_channels_last)


class UpConv4x4(nn.ConvTranspose2d):
    """Transposed 4x4 convolution of stride two without bias: (B, in, H, W) to (B, out, 2H, 2W)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 4, stride=2, padding=1, bias=False)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        if output_size is not None or not _is_faster_as_product(x, self.weight):
            return super().forward(x, output_size)
        matrix, is_channels_last = _matrix(self.weight)
        taps = (x.permute(0, 2, 3, 1) @ matrix).unflatten(3, (4, 4, -1) if is_channels_last else (-1, 4, 4))
        return _to_layout(_SumPatches.apply(taps if is_channels_last else taps.movedim(3, 5)), is_channels_last)


class _Patches(torch.autograd.Function):
    """Input patches of a 4x4 convolution of stride two: (B, 2H, 2W, C) to (B, H, W, 4, 4, C).

    Its gradient is `_SumPatches`, four sums of slices, rather than that of `unfold`, which adds up element by element.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        patches = F.pad(x, (0, 0, 1, 1, 1, 1)).unfold(1, 4, 2).unfold(2, 4, 2)  # (B, H, W, C, 4, 4)
        return patches.permute(0, 1, 2, 4, 5, 3).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Save nothing: the map is linear."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        sums: Tensor = _SumPatches.apply(grad)
        return sums


class _SumPatches(torch.autograd.Function):
    """Transpose of `_Patches`: adds up overlapping patches."""

    generate_vmap_rule = True

    @staticmethod
    def forward(taps: Tensor) -> Tensor:
        _, height, width, *_ = taps.shape
        # tap i of row h is row 2(h + i // 2) + i % 2 of the padded map
        taps = taps.unflatten(4, (2, 2)).unflatten(3, (2, 2))  # (B, H, W, rows 2 2, columns 2 2, C)
        y = taps.new_zeros(len(taps), height + 1, 2, width + 1, 2, taps.shape[-1])
        for down in (0, 1):
            for right in (0, 1):
                y[:, down : down + height, :, right : right + width] += taps[:, :, :, down, :, right].transpose(2, 3)
        return y.flatten(3, 4).flatten(1, 2)[:, 1:-1, 1:-1]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Save nothing: the map is linear."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        patches: Tensor = _Patches.apply(grad)
        return patches


def _is_faster_as_product(x: Tensor, weight: Tensor) -> bool:
    """Return whether the map has fewer elements than the weight, on CPU and not compiled."""
    return x.is_cpu and not torch.compiler.is_compiling() and x.numel() < weight.numel()


def _matrix(weight: Tensor) -> tuple[Tensor, bool]:
    """Return (a, b, 4, 4) as a matrix of a rows, without a copy; whether its columns are (4, 4, b), not (b, 4, 4)."""
    is_channels_last = weight.stride(1) == 1
    return (weight.permute(0, 2, 3, 1) if is_channels_last else weight).flatten(1), is_channels_last


def _to_layout(y_BHWC: Tensor, is_channels_last: bool) -> Tensor:
    """Return (B, C, H, W) in the layout of the weights."""
    memory_format = torch.channels_last if is_channels_last else torch.contiguous_format
    return y_BHWC.permute(0, 3, 1, 2).contiguous(memory_format=memory_format)
