"""Class-conditional batch norm (Dumoulin et al. 2017, equation 5)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import DataError
from paragan.layers.batch_norm import AffineBatchNorm, BatchNorm


class ConditionalBatchNorm(nn.Module):
    """Batch norm whose gain and bias, (classes, channels) each, are looked up by label.

    They start at exactly 1 and 0. The statistics are those of the whole batch, over all classes.
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.norm = BatchNorm(channels)
        self.gain = nn.Parameter(torch.ones(classes, channels))
        self.bias = nn.Parameter(torch.zeros(classes, channels))

    def forward(self, x: Tensor, y_B: Tensor | None) -> Tensor:
        y_B = check_labels(y_B, len(x))
        h = self.norm(x)
        gain, bias = (values.to(h.dtype) for values in self.look_up(y_B))
        shape = (*gain.shape, *(1,) * (x.dim() - 2))
        return torch.addcmul(bias.reshape(shape), h, gain.reshape(shape))

    def look_up(self, y_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return gain and bias, (B, channels) each, of these labels."""
        return F.embedding(y_B, self.gain), F.embedding(y_B, self.bias)


def batch_norm(channels: int, classes: int = 0) -> nn.Module:
    """Return a norm called as `norm(x, y_B)`: conditional if classes > 0, else affine."""
    return ConditionalBatchNorm(channels, classes) if classes else AffineBatchNorm(channels)


def check_labels(y_B: Tensor | None, count: int) -> Tensor:
    """Return the labels; raise `DataError` if they are absent or not one integer per sample.

    Their range is not checked here; the look-up fails on it.
    """
    if y_B is None:
        raise DataError(f"labels are required: this network is conditional; pass y of shape ({count},)")
    if y_B.shape != (count,) or y_B.is_floating_point():
        raise DataError(
            f"labels must be integers of shape ({count},), one per sample, not {y_B.dtype} of shape {tuple(y_B.shape)}"
        )
    return y_B
