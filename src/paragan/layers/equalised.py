"""Layers whose weights are drawn N(0, 1) and scaled to the fan-in when they are used, so that an optimiser moves all of
them equally fast: the equalised learning rate (Karras et al. 2018, "Progressive growing of GANs", section 4.1).
"""

from __future__ import annotations

from math import prod, sqrt

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

GAIN = sqrt(2)  # of what goes into a leaky ReLU: it keeps the variance, about, and might as well be applied after it


def leaky_relu_(h: Tensor) -> Tensor:
    """Leaky ReLU with slope 0.2, in place."""
    return F.leaky_relu(h, 0.2, inplace=True)


class Equalised(nn.Module):
    """A weight and perhaps a bias.

    rate: of their learning, against others'. start: the bias' first value. gain: what the result is
    multiplied by.
    """

    def __init__(
        self, *shape: int, bias: bool = True, rate: float = 1.0, start: float = 0.0, gain: float = 1.0
    ) -> None:
        super().__init__()
        self.rate = rate
        self.start = start
        self.weight = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.empty(shape[0])) if bias else None
        self.scales = (gain * rate / sqrt(prod(shape[1:])), gain * rate)
        for role, tensor in self.named_parameters():
            self.fill(role, tensor.data, None)

    def fill(self, role: str, tensor: Tensor, generator: Generator | None) -> None:
        if role == "bias":
            tensor.fill_(self.start / self.rate)
        else:
            tensor.normal_(0.0, 1 / self.rate, generator=generator)

    @property
    def scaled_parameters(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias as they are used."""
        of_weight, of_bias = self.scales
        return self.weight * of_weight, None if self.bias is None else self.bias * of_bias


class EqualLinear(Equalised):
    """(B, inputs) to (B, outputs)."""

    def __init__(self, inputs: int, outputs: int, *, rate: float = 1.0, start: float = 0.0, gain: float = 1.0) -> None:
        super().__init__(outputs, inputs, rate=rate, start=start, gain=gain)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, *self.scaled_parameters)


class EqualConv2d(Equalised):
    """(B, inputs, H, W) to (B, outputs, H, W), size x size; halves: without padding and with a stride of two."""

    def __init__(
        self, inputs: int, outputs: int, size: int, *, bias: bool = True, gain: float = 1.0, halves: bool = False
    ) -> None:
        super().__init__(outputs, inputs, size, size, bias=bias, gain=gain)
        self.stride, self.padding = (2, 0) if halves else (1, size // 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, *self.scaled_parameters, stride=self.stride, padding=self.padding)
