"""Self-attention over a feature map (Zhang et al. 2019, SAGAN, equations 1 to 3)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.layers.blocks import Wrap, fill_zero, identity_wrap
from paragan.layers.precision import at_least_float32

_KEYS = 8  # divisor of the channels
_VALUES = 2


class SelfAttention(nn.Module):
    """Residual self-attention, x + gain * attention(x), with a learnt gain that starts at 0.

    Keys and values are max-pooled 2x2, as in the authors' code. Channels are a multiple of 8, H and W even. The
    softmax is computed in at least float32. wrap: applied to the convolutions (`spectral_norm`).
    """

    fill = fill_zero  # at first the network is as without attention

    def __init__(self, channels: int, wrap: Wrap = identity_wrap) -> None:
        super().__init__()
        if channels % _KEYS:
            raise ConfigError(
                f"model.width: attention has {channels} channels, which must be a multiple of {_KEYS}; pass a "
                f"multiple of {_KEYS}, or, where the model has it, model.attention=null"
            )
        self.query = wrap(nn.Conv2d(channels, channels // _KEYS, 1, bias=False))
        self.key = wrap(nn.Conv2d(channels, channels // _KEYS, 1, bias=False))
        self.value = wrap(nn.Conv2d(channels, channels // _VALUES, 1, bias=False))
        self.out = wrap(nn.Conv2d(channels // _VALUES, channels, 1, bias=False))
        self.gain = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        query_BNC = self.query(x).flatten(2).transpose(1, 2)
        key_BCM = F.max_pool2d(self.key(x), 2).flatten(2)
        value_BCM = F.max_pool2d(self.value(x), 2).flatten(2)
        weight_BNM = at_least_float32(query_BNC @ key_BCM).softmax(2).to(value_BCM.dtype)
        attended = (value_BCM @ weight_BNM.transpose(1, 2)).unflatten(2, x.shape[2:])
        return torch.addcmul(x, self.gain.to(x.dtype), self.out(attended))
