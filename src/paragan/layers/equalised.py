"""Layers with the equalised learning rate (Karras et al. 2018, section 4.1).

Weights are drawn N(0, 1) and scaled to the fan-in when used, so all of them learn equally fast.
"""

from math import prod, sqrt

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

GAIN = sqrt(2)  # before a leaky ReLU: preserves the variance approximately


def leaky_relu_(h: Tensor) -> Tensor:
    """Leaky ReLU with slope 0.2, in place."""
    return F.leaky_relu(h, 0.2, inplace=True)


class Equalised(nn.Module):
    """Base of layers with an equalised weight and an optional bias.

    rate: relative learning rate. start: initial bias, before `gain`. gain: factor of the result.
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
        """Draw one parameter (called by `layers.init`): weights of deviation 1 / rate around 0, the bias as `start`."""
        if role == "bias":
            tensor.fill_(self.start / self.rate)
        else:
            tensor.normal_(0.0, 1 / self.rate, generator=generator)

    @property
    def scaled_parameters(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias as the layer uses them."""
        of_weight, of_bias = self.scales
        return self.weight * of_weight, None if self.bias is None else self.bias * of_bias


class EqualLinear(Equalised):
    """Linear layer with the equalised learning rate."""

    def __init__(self, inputs: int, outputs: int, *, rate: float = 1.0, start: float = 0.0, gain: float = 1.0) -> None:
        super().__init__(outputs, inputs, rate=rate, start=start, gain=gain)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, *self.scaled_parameters)


class EqualConv2d(Equalised):
    """Convolution with the equalised learning rate, same size; halves: stride two, unpadded."""

    def __init__(
        self, inputs: int, outputs: int, size: int, *, bias: bool = True, gain: float = 1.0, halves: bool = False
    ) -> None:
        super().__init__(outputs, inputs, size, size, bias=bias, gain=gain)
        self.stride, self.padding = (2, 0) if halves else (1, size // 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, *self.scaled_parameters, stride=self.stride, padding=self.padding)
