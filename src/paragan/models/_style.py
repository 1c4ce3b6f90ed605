"""Blocks of StyleGAN2's generator (Karras et al. 2020, figures 2c and 7).

They pass the map, the image so far and the styles of all layers, so a pipeline can cut anywhere.
"""

from itertools import pairwise
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.option_types import size_of
from paragan.layers.blocks import fill_normal, fill_zero
from paragan.layers.conditional_norm import check_labels
from paragan.layers.equalised import GAIN, EqualLinear, leaky_relu_
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.random import RowDrawing
from paragan.layers.resample import blur, upsample

State = tuple[Tensor, Tensor | None, Tensor]  # map, image, styles (B, layers, length)
_RATE = 0.01  # learning rate of mapping layers
_EPS = 1e-8
_UP = 4.0  # three of four pixels are zeros before the blur


class ClassVector(nn.Module):
    """Class embedding (B, length) of mean square 1: a learnt vector per class plus a shared one."""

    fill = fill_normal

    def __init__(self, classes: int, length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, length))
        self.bias = nn.Parameter(torch.zeros(length))

    def forward(self, y_B: Tensor | None, count: int) -> Tensor:
        return normalize_second_moment(
            F.embedding(check_labels(y_B, count), self.weight) / sqrt(len(self.weight)) + self.bias
        )


def normalize_second_moment(x: Tensor) -> Tensor:
    """Scale rows to a mean square of 1."""
    return x * x.square().mean(1, keepdim=True).add(_EPS).rsqrt()


def mapping_layers(inputs: int, length: int, num: int) -> nn.ModuleList:
    """Return fully connected layers with a low learning rate."""
    sizes = [inputs, *[length] * num]
    return nn.ModuleList(EqualLinear(a, b, rate=_RATE, gain=GAIN) for a, b in pairwise(sizes))


class Mapping(RowDrawing):
    """Mapping network: z_BZ (and y_B) to styles (B, num, length), equal for all `num` layers.

    mixing: share of training images that use the style of a second latent from a random layer up
    (Karras et al. 2019, section 3.1).
    """

    def __init__(self, latent: int, length: int, classes: int, depth: int, num: int, mixing: float) -> None:
        super().__init__()
        self.num = num
        self.mixing = mixing
        self.draws = mixing > 0
        self.embed = ClassVector(classes, length) if classes else None
        self.layers = mapping_layers(latent + (length if classes else 0), length, depth)

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        w_BLW = self.style(z_BZ, y_B).unsqueeze(1).expand(-1, self.num, -1)
        if not (self.training and self.mixing):
            return w_BLW
        other = self.style(self.normal(z_BZ, *z_BZ.shape[1:]).to(z_BZ.dtype), y_B).unsqueeze(1)
        mixed, share = self.uniform(z_BZ, 2, 1, number=1).unbind(1)
        first = torch.where(mixed < self.mixing, 1 + (share * (self.num - 1)).floor(), self.num)
        late_BL = torch.arange(self.num, device=z_BZ.device) >= first
        return torch.where(late_BL.unsqueeze(2), other, w_BLW)

    def style(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Tensor:
        """Return one style per latent, (B, length)."""
        h = normalize_second_moment(z_BZ)
        if self.embed is not None:
            h = torch.cat([h, self.embed(y_B, len(h)).to(h.dtype)], 1)
        for layer in self.layers:
            h = leaky_relu_(layer(h))
        return h


class ModulatedConv2d(nn.Module):
    """Convolution of (B, inputs, H, W), modulated by styles (B, inputs) and demodulated (equations 1 and 3).

    Scaling the weights along their inputs is scaling the inputs, and dividing them by the norm of each output's weights
    is dividing the outputs: all images share one convolution with plain weights. Weights are N(0, 1): demodulation
    makes their scale irrelevant. up: a transposed convolution of stride two, then a blur, to (B, outputs, 2H, 2W).
    """

    fill = fill_normal

    def __init__(self, inputs: int, outputs: int, size: int = 3, up: bool = False) -> None:
        super().__init__()
        self.up = up
        self.weight = nn.Parameter(torch.randn(outputs, inputs, size, size))

    def forward(self, x: Tensor, style_BI: Tensor, gain: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return the map and a factor (B, outputs, 1, 1) to apply next, which fuses with a bias."""
        with autocast_off(style_BI):
            style_BI = at_least_float32(style_BI)
            energy_OI = self.weight.to(style_BI.dtype).square().sum((2, 3))
            scale = gain * (_UP if self.up else 1.0)
            norm_BO = F.linear(style_BI.square(), energy_OI).add(_EPS).rsqrt() * scale
        y = _conv(x * style_BI.to(x.dtype)[:, :, None, None], self.weight, self.up)
        return y, norm_BO[:, :, None, None].to(y.dtype)


def _conv(x: Tensor, weight: Tensor, up: bool) -> Tensor:
    """Convolve at the same size; up: at twice the size, with a quarter of the right value."""
    if up:
        return blur(F.conv_transpose2d(x, weight.transpose(0, 1), stride=2), before=1, after=1)
    return F.conv2d(x, weight, padding=weight.shape[-1] // 2)


class StyledConv(nn.Module):
    """Modulated 3x3 convolution, noise, bias, leaky ReLU. size: of the output map."""

    fill = fill_zero

    def __init__(self, inputs: int, outputs: int, length: int, size: tuple[int, int], *, up: bool, noise: bool) -> None:
        super().__init__()
        self.conv = ModulatedConv2d(inputs, outputs, up=up)
        self.affine = EqualLinear(length, inputs, start=1.0)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.noise = Noise(size) if noise else None

    def forward(self, x: Tensor, w_BW: Tensor) -> Tensor:
        y, norm = self.conv(x, self.affine(w_BW), GAIN)
        h = torch.addcmul((self.bias * GAIN).to(y.dtype)[:, None, None], y, norm)
        return leaky_relu_(h if self.noise is None else h + self.noise(h) * GAIN)


class Noise(RowDrawing):
    """Normal noise per pixel times a learnt strength, 0 at the start; fixed in evaluation."""

    fill = fill_zero
    fixed: Tensor

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.zeros(()))
        noise = torch.randn(*size, generator=rng.generator("stylegan2/noise", size_of(*size)))
        self.register_buffer("fixed", noise)

    def forward(self, h: Tensor) -> Tensor:
        if not self.training:
            return self.fixed.to(h.dtype) * self.strength.to(h.dtype)
        return self.normal(h, 1, *h.shape[2:]).to(h.dtype) * self.strength.to(h.dtype)


class ToImage(nn.Module):
    """Modulated 1x1 convolution to colours, in at least float32."""

    fill = fill_normal

    def __init__(self, inputs: int, channels: int, length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, inputs, 1, 1))
        self.affine = EqualLinear(length, inputs, start=1.0)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, w_BW: Tensor) -> Tensor:
        style_BI = self.affine(w_BW) / sqrt(self.weight.shape[1])
        colours = F.conv2d(x * style_BI.to(x.dtype)[:, :, None, None], self.weight)
        return at_least_float32(colours) + self.bias[:, None, None]


class SynthesisBlock(nn.Module):
    """Layers of one resolution, and what they add to the image.

    number: of its first layer among all; last: return the image alone.
    """

    def __init__(self, convs: list[StyledConv], colours: ToImage, number: int, last: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.colours = colours
        self.number = number
        self.last = last

    def forward(self, state: State, y_B: Tensor | None = None) -> State | Tensor:
        h, image, w_BLW = state
        for place, conv in enumerate(self.convs, start=self.number):
            h = conv(h, w_BLW[:, place])
        colours = self.colours(h, w_BLW[:, self.number + len(self.convs)])
        image = colours if image is None else upsample(image) + colours
        return image if self.last else (h, image, w_BLW)


class ConstantInput(nn.Module):
    """First state from styles: a learnt map, equal for all images."""

    fill = fill_normal

    def __init__(self, channels: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.map = nn.Parameter(torch.randn(channels, *size))

    def forward(self, w_BLW: Tensor, y_B: Tensor | None = None) -> State:
        # a copy: sharded weights are freed before the next block reads this output
        return self.map.to(w_BLW.dtype).repeat(len(w_BLW), 1, 1, 1), None, w_BLW
