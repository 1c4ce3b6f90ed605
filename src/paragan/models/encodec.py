"""EnCodec (Defossez et al. 2022, "High Fidelity Neural Audio Compression"): audio to tokens, and back.

G is a SEANet encoder, a residual vector quantizer and the mirrored decoder; it reconstructs the audio of the batch. D
is the multi-scale STFT discriminator (section 3.4): 2-D convolutions over complex spectrograms of several windows. The
defaults are a small version, for 8 kHz: frames of 64 samples, 4 codebooks of 8 bits, 4 kbit/s. Differences from the
paper: codes are short, of unit norm and trained by gradients (DAC, Kumar et al. 2023), not moving averages; the encoder
ends with as many channels as its last map (the paper: 128); short-cuts are identities; D is half as wide; no LSTM, no
weight normalisation; G ends in tanh. Differences from the authors' code: G pads with zeros at both ends (reflected
samples, at 24 kHz only before the first), and D's spectrograms, divided by the square root of the window's length (of
its energy), are 0.61 times as large.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import DataError
from paragan.core.option_types import Count, Interval
from paragan.core.outputs import GeneratorOutput
from paragan.layers.precision import at_least_float32
from paragan.layers.vector_quantizer import ResidualQuantizer
from paragan.models._options import WeightInit

SAMPLE = "audio"  # the tensor that G generates, for `build.data`
_SLOPE = 0.2
_DILATIONS = (1, 2, 4)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes of both networks."""

    width: Count = 16
    """Channels of the encoder's first layer, doubled by each rate; the paper: 32.

    A discriminator has half as many; the paper: 32.
    """
    rates: tuple[Annotated[int, Interval(ge=2)], ...] = (2, 4, 8)
    """Factors of the encoder's reductions; their product is the samples of a frame. The paper: 2, 4, 5, 8."""
    codebooks: Count = 4
    """Levels of the residual quantizer; the paper: up to 32."""
    codes: Count = 256
    """Size of each codebook; the paper: 1024."""
    depth: Count = 8
    """Length of a code; the paper: 128, DAC: 8."""
    windows: tuple[Count, ...] = (512, 256, 128)
    """Samples of D's windows, with hops of a quarter; the paper: 2048, 1024, 512, 256, 128."""


class Generator(nn.Module):
    """`audio` (B, 1 or 2, T) in [-1, 1] to its reconstruction; losses and tokens are in `extra`."""

    latent = 0  # no z: it is called with the audio of a batch
    weight_init: WeightInit = "torch"

    def __init__(self, options: Options, shape: tuple[int, ...], num_classes: int = 0) -> None:
        super().__init__()
        frame = prod(options.rates)
        _check_shape(shape, shape[-1] % frame == 0, f"N a multiple of {frame}")
        self.input_multiple = frame  # to which `apply` pads audio
        widths = [options.width << level for level in range(len(options.rates) + 1)]
        last = nn.Conv1d(widths[-1], widths[-1], 7, padding=3)
        self.encoder = nn.Sequential(*_downwards([shape[0], *widths], options.rates), nn.ELU(), last)
        self.quantizer = ResidualQuantizer(options.codebooks, options.codes, widths[-1], options.depth)
        first = nn.Conv1d(widths[-1], widths[-1], 7, padding=3)
        self.decoder = nn.Sequential(first, *_upwards(widths[::-1], options.rates[::-1]), nn.ELU())
        self.last = nn.Conv1d(widths[0], shape[0], 7, padding=3)

    def forward(self, audio: Tensor) -> GeneratorOutput:
        h, extra = self.quantizer(self.encoder(audio))
        return GeneratorOutput(self.decode(h), extra)

    def encode(self, audio: Tensor) -> Tensor:
        """Return the tokens (B, codebooks, frames) of audio."""
        _, extra = self.quantizer(self.encoder(audio))
        return extra["tokens"]

    def decode(self, h: Tensor) -> Tensor:
        """Return audio of vectors (B, C, frames), as `quantizer.vectors` returns them for tokens."""
        return at_least_float32(self.last(self.decoder(h))).tanh()


class Discriminator(nn.Module):
    """Audio (B, 1 or 2, T) to a list of outputs, one for each window."""

    weight_init: WeightInit = "torch"

    def __init__(self, options: Options, shape: tuple[int, ...], num_classes: int = 0) -> None:
        super().__init__()
        longest = max(options.windows)
        _check_shape(shape, shape[-1] >= longest, f"N at least {longest}, the longest of model.windows")
        width = max(1, options.width // 2)
        self.scales = nn.ModuleList([StftDiscriminator(window, width, shape[0]) for window in options.windows])

    def forward(self, audio: Tensor) -> list[tuple[Tensor, list[Tensor]]]:
        return [net(audio) for net in self.scales]


class StftDiscriminator(nn.Module):
    """2-D convolutions over the real and the imaginary part of spectrograms, (B, 2 * channels, frames, frequencies)."""

    def __init__(self, window: int, width: int, channels: int) -> None:
        super().__init__()
        self.window = window
        first = nn.Conv2d(2 * channels, width, (3, 9), padding=(1, 4))
        reducing = [nn.Conv2d(width, width, (3, 9), (1, 2), (d, 4), dilation=(d, 1)) for d in _DILATIONS]
        self.convs = nn.ModuleList([first, *reducing, nn.Conv2d(width, width, 3, padding=1)])
        self.last = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        h = self._spectrogram(audio.flatten(0, 1))
        h = h.reshape(len(audio), -1, *h.shape[2:])
        features = []
        for conv in self.convs:
            h = F.leaky_relu(conv(h), _SLOPE)
            features.append(h)
        return at_least_float32(self.last(h)).flatten(1), features

    def _spectrogram(self, audio_BT: Tensor) -> Tensor:
        audio_BT = at_least_float32(audio_BT)
        hann = torch.hann_window(self.window, dtype=audio_BT.dtype, device=audio_BT.device)
        spectrum = torch.stft(
            audio_BT,
            n_fft=self.window,
            hop_length=self.window // 4,
            window=hann,
            center=False,
            normalized=True,
            return_complex=True,
        )
        return torch.view_as_real(spectrum).permute(0, 3, 2, 1)


class BottleneckResidual(nn.Module):
    """ELU, convolution of three to half the channels, ELU, 1x1, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = max(1, width // 2)
        self.layers = nn.Sequential(nn.ELU(), nn.Conv1d(width, half, 3, padding=1), nn.ELU(), nn.Conv1d(half, width, 1))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.layers(h)


def _downwards(widths: list[int], rates: tuple[int, ...]) -> list[nn.Module]:
    """Return the first convolution, then for each rate a residual block and a strided convolution, of length T / rate.

    widths: channels of audio, then of each map.
    """
    layers: list[nn.Module] = [nn.Conv1d(widths[0], widths[1], 7, padding=3)]
    for (inputs, outputs), rate in zip(pairwise(widths[1:]), rates, strict=True):
        strided = nn.Conv1d(inputs, outputs, 2 * rate, rate, (rate + 1) // 2)
        layers += [BottleneckResidual(inputs), nn.ELU(), strided]
    return layers


def _upwards(widths: list[int], rates: tuple[int, ...]) -> list[nn.Module]:
    """Return a transposed convolution and a residual block for each rate, of length T * rate."""
    layers: list[nn.Module] = []
    for (inputs, outputs), rate in zip(pairwise(widths), rates, strict=True):
        padding = (rate + 1) // 2  # with it, both lengths are exact also where a rate is not even
        up = nn.ConvTranspose1d(inputs, outputs, 2 * rate, rate, padding, output_padding=rate % 2)
        layers += [nn.ELU(), up, BottleneckResidual(outputs)]
    return layers


def _check_shape(shape: tuple[int, ...], has_valid_length: bool, length: str) -> None:
    if len(shape) != 2 or shape[0] not in (1, 2) or not has_valid_length:
        size = "x".join(map(str, shape))
        raise DataError(f"encodec reconstructs audio of 1xN or 2xN samples, {length}, not {size}")
