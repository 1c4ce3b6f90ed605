"""Batch normalisation (Ioffe & Szegedy 2015, algorithms 1 and 2), in two pieces.

`BatchNorm` has the statistics and no parameters: it is the one piece that a data-parallel run
swaps, from outside, for one whose statistics span the ranks. What scales and shifts
(`AffineBatchNorm`, `ConditionalBatchNorm`) holds one of them as `norm`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.layers.update_once import UpdateOnce


class BatchNorm(UpdateOnce):
    """Zero mean, unit variance per channel of (B, C) or (B, C, ...), over everything but C; gain and bias are fused.

    In training the batch's own statistics, in evaluation the running ones. The running statistics
    follow only in an update's first forward (see `UpdateOnce`), so a generator that merely feeds
    the other player's turn does not drift; a batch whose statistics are not finite is left out, for
    its step is skipped. Statistics are float32, also under autocast.
    """

    mixes = True
    mean: Tensor
    var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(self, x: Tensor, gain_C: Tensor | None = None, bias_C: Tensor | None = None) -> Tensor:
        if not self.training:
            return F.batch_norm(x, self.mean, self.var, gain_C, bias_C, False, 0.0, self.eps)
        # Copies, also where the statistics are not updated: the kernel writes into them, its backward may hold them,
        # and a forward that is recomputed, disarmed by then, must keep the same tensors as the first.
        mean = self.mean.clone()
        var = self.var.clone()
        y = F.batch_norm(x, mean, var, gain_C, bias_C, True, self.momentum, self.eps)
        if self.take_update():
            self._follow(mean, var)
        return y

    @torch.no_grad()
    def _follow(self, mean: Tensor, var: Tensor) -> None:
        finite = mean.isfinite() & var.isfinite()
        self.mean.copy_(torch.where(finite, mean, self.mean))
        self.var.copy_(torch.where(finite, var, self.var))


class AffineBatchNorm(nn.Module):
    """Batch norm with one learnt gain and bias per channel; labels are accepted and ignored."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = BatchNorm(channels)
        self.gain = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        return self.norm(x, self.gain, self.bias)
