"""Batch normalisation (Ioffe & Szegedy 2015, algorithms 1 and 2), in two pieces.

`BatchNorm` has the statistics and no parameters: it is the one piece that a data-parallel run swaps, from outside, for one whose
statistics span the ranks. What scales and shifts (`AffineBatchNorm`, `ConditionalBatchNorm`) holds one of them as `norm`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.layers.armed import Armed


class BatchNorm(Armed):
    """Zero mean, unit variance per channel of (B, C) or (B, C, ...), over everything but C; the optional gain and bias are fused.

    In training the batch's own statistics, in evaluation the running ones. The running statistics follow only in an update's
    first forward (see `Armed`), so a generator that merely feeds the other player's turn does not drift. Statistics are
    float32 (float64 for float64 input), also under autocast.
    """

    mixes = True
    mean: Tensor
    var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(self, x: Tensor, gain_C: Tensor | None = None, bias_C: Tensor | None = None) -> Tensor:
        if not self.training:
            return F.batch_norm(x, self.mean, self.var, gain_C, bias_C, False, 0.0, self.eps)
        followed = (self.mean, self.var) if self.disarm() else (None, None)
        return F.batch_norm(x, *followed, gain_C, bias_C, True, self.momentum, self.eps)


class AffineBatchNorm(nn.Module):
    """Batch norm with one learnt gain and bias per channel. Takes labels and ignores them, as `ConditionalBatchNorm` does not."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = BatchNorm(channels)
        self.gain = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        return self.norm(x, self.gain, self.bias)
