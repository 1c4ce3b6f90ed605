"""HiFi-GAN (Kong et al. 2020, "HiFi-GAN: Generative Adversarial Networks for Efficient and High Fidelity Speech
Synthesis"): audio from a mel spectrogram.

G upsamples the frames of `mel` to samples of `audio` by transposed convolutions, each followed by the mean
of residual blocks with several kernel sizes and dilations (section 2.2). D is a multi-period and a
multi-scale discriminator (2.3): the first folds the audio by periods, the second reads it at 1, 1/2,
1/4, … of its rate. The defaults are a small version, for 8 kHz and frames of 64 samples. There is no
weight normalisation; the authors' code has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import DataError
from paragan.core.option_types import Count
from paragan.layers.precision import at_least_float32
from paragan.models._options import WeightInit

SAMPLE = "audio"
_SLOPE = 0.1
_KERNELS = (3, 7)  # of G's residual blocks; the paper: 3, 7, 11
_DILATIONS = (1, 3)
_PERIODS = (2, 3, 5, 7, 11)  # of the multi-period discriminator (section 2.3)
_FACTORS = (1, 2)  # of the multi-scale discriminator; the paper: 1, 2, 4


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes of both networks."""

    bands: Count = 40
    """Mel bands of a frame."""
    width: Count = 128
    """Channels of G's first layer, halved by each upsampling; the paper: 512 (V1), 256 (V3).

    A discriminator has a sixteenth in its first layer.
    """
    rates: tuple[Count, ...] = (4, 4, 4)
    """Factors of G's upsampling; their product is the samples of a frame. The paper: 8, 8, 2, 2."""


class Generator(nn.Module):
    """`mel` (B, bands, F) to audio (B, 1, F * samples of a frame) in [-1, 1]."""

    latent = 0
    weight_init: WeightInit = "torch"

    def __init__(self, options: Options, shape: tuple[int, ...], num_classes: int = 0) -> None:
        super().__init__()
        frame = prod(options.rates)
        if len(shape) != 2 or shape[0] != 1 or shape[1] % frame:
            found = "x".join(map(str, shape))
            raise DataError(f"hifigan generates audio of 1xN samples, N a multiple of {frame}, not {found}")
        widths = [max(1, options.width >> level) for level in range(len(options.rates) + 1)]
        self.first = nn.Conv1d(options.bands, widths[0], 7, padding=3)
        layers = zip(pairwise(widths), options.rates, strict=True)
        self.blocks = nn.ModuleList([Upsampling(a, b, rate) for (a, b), rate in layers])
        self.last = nn.Conv1d(widths[-1], 1, 7, padding=3)

    def forward(self, mel: Tensor) -> Tensor:
        h = self.first(mel)
        for block in self.blocks:
            h = block(h)
        return at_least_float32(self.last(F.leaky_relu(h, _SLOPE))).tanh()


class Upsampling(nn.Module):
    """Leaky ReLU, transposed convolution, mean of residual blocks."""

    def __init__(self, inputs: int, outputs: int, rate: int) -> None:
        super().__init__()
        padding = (rate + 1) // 2
        self.up = nn.ConvTranspose1d(inputs, outputs, 2 * rate, rate, padding, output_padding=rate % 2)
        self.residuals = nn.ModuleList([DilatedResidual(outputs, kernel) for kernel in _KERNELS])

    def forward(self, h: Tensor) -> Tensor:
        h = self.up(F.leaky_relu(h, _SLOPE))
        total = self.residuals[0](h)
        for residual in self.residuals[1:]:
            total = total + residual(h)
        return total / len(self.residuals)


class DilatedResidual(nn.Module):
    """Residual convolutions with growing dilation."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv1d(width, width, kernel, padding=d * (kernel - 1) // 2, dilation=d) for d in _DILATIONS]
        )

    def forward(self, h: Tensor) -> Tensor:
        for conv in self.convs:
            h = h + conv(F.leaky_relu(h, _SLOPE))
        return h


class Discriminator(nn.Module):
    """Audio (B, 1, T) to the outputs of `mpd`, one for each period, and `msd`, one for each scale."""

    weight_init: WeightInit = "torch"

    def __init__(self, options: Options, shape: tuple[int, ...], num_classes: int = 0) -> None:
        super().__init__()
        width = max(1, options.width // 16)
        self.mpd = nn.ModuleList([PeriodDiscriminator(period, width) for period in _PERIODS])
        self.msd = nn.ModuleList([ScaleDiscriminator(factor, width) for factor in _FACTORS])

    def forward(self, audio: Tensor) -> dict[str, list[tuple[Tensor, list[Tensor]]]]:
        return {"mpd": [net(audio) for net in self.mpd], "msd": [net(audio) for net in self.msd]}


class PeriodDiscriminator(nn.Module):
    """Folds audio by a period, and looks at each phase of it."""

    def __init__(self, period: int, width: int) -> None:
        super().__init__()
        self.period = period
        widths = (1, width, 2 * width, 4 * width, 4 * width)
        self.convs = nn.ModuleList([nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in pairwise(widths)])
        self.last = nn.Conv2d(widths[-1], 1, (3, 1), padding=(1, 0))

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        padded = F.pad(audio, (0, -audio.shape[2] % self.period), mode="reflect")
        return _logits(padded.unflatten(2, (-1, self.period)), self.convs, self.last)


class ScaleDiscriminator(nn.Module):
    """Reads audio after averaging over `factor` samples."""

    def __init__(self, factor: int, width: int) -> None:
        super().__init__()
        self.factor = factor
        widths = (width, 2 * width, 4 * width, 4 * width)
        first = nn.Conv1d(1, width, 15, padding=7)
        strided = [nn.Conv1d(a, b, 21, 4, 10, groups=max(1, a // 4)) for a, b in pairwise(widths)]
        self.convs = nn.ModuleList([first, *strided])
        self.last = nn.Conv1d(widths[-1], 1, 3, padding=1)

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        return _logits(F.avg_pool1d(audio, self.factor), self.convs, self.last)


def _logits(h: Tensor, convs: Any, last: nn.Module) -> tuple[Tensor, list[Tensor]]:
    """Return logits (B, n) and the features of each layer."""
    features = []
    for conv in convs:
        h = F.leaky_relu(conv(h), _SLOPE)
        features.append(h)
    return at_least_float32(last(h)).flatten(1), features
