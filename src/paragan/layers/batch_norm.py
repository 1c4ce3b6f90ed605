"""Batch normalisation (Ioffe & Szegedy 2015, algorithms 1 and 2), in two pieces.

`BatchNorm` has the statistics and no parameters; data-parallel runs replace it by one whose statistics span the
ranks. Layers with gain and bias (`AffineBatchNorm`, `ConditionalBatchNorm`) hold one as `norm`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.layers.update_once import UpdateOnce


class BatchNorm(UpdateOnce):
    """Normalisation of (B, C) or (B, C, ...) per channel, with fused gain and bias.

    Training uses the statistics of the batch, evaluation the running ones. Running statistics are updated only in the
    first forward of an update (`UpdateOnce`), so other players' turns leave them unchanged; statistics that are not
    finite are skipped. They are float32, also under autocast.
    """

    mixes_samples = True
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
        # Copies even without an update: the kernel writes into them, and its backward may hold them. Activation
        # checkpointing runs this forward again, then without an update, and must meet the same tensors as before.
        mean = self.mean.clone()
        var = self.var.clone()
        y = F.batch_norm(x, mean, var, gain_C, bias_C, True, self.momentum, self.eps)
        if self.take_update():
            self._update_running(mean, var)
        return y

    @torch.no_grad()
    def _update_running(self, mean: Tensor, var: Tensor) -> None:
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
