"""HiFi-GAN (Kong et al. 2020, "HiFi-GAN: Generative Adversarial Networks for Efficient and High Fidelity Speech
Synthesis"): audio from a mel spectrogram.

G upsamples the frames of `mel` to samples of `audio` by transposed convolutions, each followed by the mean of residual
blocks with several kernel sizes and dilations (section 2.2). D is a multi-period and a multi-scale discriminator (2.3):
the first folds the audio by periods, the second reads it at lower and lower rates. The defaults are a small version,
for 8 kHz and frames of 64 samples. The paper's networks have `n_mels: 80`; parameters of G, and of D's `mpd` and `msd`:

    V1  flavour v1, width 512, rates 8, 8, 2, 2   13,926,017   41,092,165 and 29,610,627
    V2  flavour v1, width 128, rates 8, 8, 2, 2      925,985   the same
    V3  flavour v3, width 256, rates 8, 8, 4       1,462,273   the same

Differences from the authors' code: no weight normalisation (so N(0, 0.01), which it overwrites there, is
not drawn here either), and D's features are without its logits. G of `small` has two kernel sizes of two
dilations, and 0.1 as its last slope (0.01).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, prod
from typing import Annotated, Any, Literal, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import DataError
from paragan.core.option_types import Count, Interval
from paragan.layers.blocks import Wrap, identity_wrap
from paragan.layers.precision import at_least_float32
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._options import WeightInit

SAMPLE = "audio"  # the tensor that G generates, for `build.data`
_SLOPE = 0.1
# of the convolutions of G's residual blocks, by flavour and kernel size (the paper, table 5)
_DILATIONS: dict[str, dict[int, tuple[int, ...]]] = {
    "small": {3: (1, 3), 7: (1, 3)},
    "v1": dict.fromkeys((3, 7, 11), (1, 1, 3, 1, 5, 1)),
    "v3": {3: (1, 2), 5: (2, 6), 7: (3, 12)},
}
_PERIODS = (2, 3, 5, 7, 11)  # of the multi-period discriminator (section 2.3)


class ConvSize(NamedTuple):
    """A layer of a discriminator."""

    channels: int
    kernel: int
    stride: int = 1
    groups: int = 1


_OF_A_PERIOD = [ConvSize(channels, 5, 3) for channels in (32, 128, 512, 1024)] + [ConvSize(1024, 5)]
_OF_A_SCALE = [
    ConvSize(128, 15),
    ConvSize(128, 41, 2, 4),
    ConvSize(256, 41, 2, 16),
    ConvSize(512, 41, 4, 16),
    ConvSize(1024, 41, 4, 16),
    ConvSize(1024, 41, 1, 16),
    ConvSize(1024, 5),
]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes of both networks."""

    n_mels: Count | None = None
    """Mel bands of a frame; null: the data's, else 40. The paper: 80."""
    width: Count = 128
    """Channels of G's first layer, halved by each upsampling; the paper: 512 (V1), 128 (V2), 256 (V3).

    A discriminator of `small` has a sixteenth in its first layer.
    """
    rates: tuple[Annotated[int, Interval(ge=2)], ...] = (4, 4, 4)
    """Factors of G's upsampling; their product is the samples of a frame. The paper: 8, 8, 2, 2 (V3: 8, 8, 4)."""
    flavour: Literal["small", "v1", "v3"] = "small"
    """Layers of the networks: `small`, or the paper's: `v1` of V1 and V2, `v3` of V3, which have the same D."""


class Generator(nn.Module):
    """`mel` (B, C * n_mels, F) to audio (B, C, F * samples of a frame) in [-1, 1]; C: 1 or 2 channels."""

    latent = 0  # no z: it is called with the spectrograms of a batch
    weight_init: WeightInit = "torch"

    def __init__(self, options: Options, shape: tuple[int, ...], num_classes: int = 0) -> None:
        super().__init__()
        frame = prod(options.rates)
        if len(shape) != 2 or shape[0] not in (1, 2) or shape[1] % frame:
            size = "x".join(map(str, shape))
            raise DataError(f"hifigan generates audio of 1xN or 2xN samples, N a multiple of {frame}, not {size}")
        self.input_multiple = frame  # samples of audio
        widths = [max(1, options.width >> level) for level in range(len(options.rates) + 1)]
        self.first = nn.Conv1d((options.n_mels or 40) * shape[0], widths[0], 7, padding=3)
        layers = zip(pairwise(widths), options.rates, strict=True)
        self.blocks = nn.ModuleList([Upsampling(a, b, rate, options.flavour) for (a, b), rate in layers])
        self.last = nn.Conv1d(widths[-1], shape[0], 7, padding=3)
        self.last_slope = _SLOPE if options.flavour == "small" else 0.01

    def forward(self, mel: Tensor) -> Tensor:
        h = self.first(mel)
        for block in self.blocks:
            h = block(h)
        return at_least_float32(self.last(F.leaky_relu(h, self.last_slope))).tanh()


class Upsampling(nn.Module):
    """Leaky ReLU, transposed convolution, mean of residual blocks."""

    def __init__(self, inputs: int, outputs: int, rate: int, flavour: str) -> None:
        super().__init__()
        padding = (rate + 1) // 2  # with it, the length is exact also where a rate is not even
        self.up = nn.ConvTranspose1d(inputs, outputs, 2 * rate, rate, padding, output_padding=rate % 2)
        depth = 2 if flavour == "v1" else 1
        self.residuals = nn.ModuleList()
        for kernel, dilations in _DILATIONS[flavour].items():
            self.residuals.append(DilatedResidual(outputs, kernel, dilations, depth))

    def forward(self, h: Tensor) -> Tensor:
        h = self.up(F.leaky_relu(h, _SLOPE))
        total = self.residuals[0](h)
        for residual in self.residuals[1:]:
            total = total + residual(h)
        return total / len(self.residuals)


class DilatedResidual(nn.Module):
    """Residuals of `depth` convolutions each, of these dilations."""

    def __init__(self, width: int, kernel: int, dilations: Sequence[int], depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.convs = nn.ModuleList(
            [nn.Conv1d(width, width, kernel, padding=d * (kernel - 1) // 2, dilation=d) for d in dilations]
        )

    def forward(self, h: Tensor) -> Tensor:
        for start in range(0, len(self.convs), self.depth):
            residual = h
            for conv in self.convs[start : start + self.depth]:
                residual = conv(F.leaky_relu(residual, _SLOPE))
            h = h + residual
        return h


class Discriminator(nn.Module):
    """Audio (B, C, T) to the outputs of `mpd`, one for each period, and `msd`, one for each scale."""

    weight_init: WeightInit = "torch"

    def __init__(self, options: Options, shape: tuple[int, ...], num_classes: int = 0) -> None:
        super().__init__()
        of_a_period, of_a_scale = _OF_A_PERIOD, _OF_A_SCALE
        halved = nn.AvgPool1d(4, 2, 2)  # has no weights: one may stand in several places
        pools: list[nn.Module] = [nn.Sequential(*[halved] * number) for number in range(3)]
        wraps = [spectral_norm, identity_wrap, identity_wrap]
        if options.flavour == "small":  # four layers of each period and of two scales, none with spectral norm
            width = max(1, options.width // 16)
            widths = (width, 2 * width, 4 * width, 4 * width)  # what divides one divides the next
            of_a_period = [ConvSize(channels, 5, 3) for channels in widths]
            of_a_scale = [ConvSize(width, 15), *(ConvSize(b, 21, 4, gcd(a, a // 4 or 1)) for a, b in pairwise(widths))]
            pools = [nn.AvgPool1d(factor) for factor in (1, 2)]
            wraps = [identity_wrap, identity_wrap]
        self.mpd = nn.ModuleList([PeriodDiscriminator(period, shape[0], of_a_period) for period in _PERIODS])
        scales = zip(pools, wraps, strict=True)
        self.msd = nn.ModuleList([ScaleDiscriminator(pool, shape[0], of_a_scale, wrap) for pool, wrap in scales])

    def forward(self, audio: Tensor) -> dict[str, list[tuple[Tensor, list[Tensor]]]]:
        return {"mpd": [net(audio) for net in self.mpd], "msd": [net(audio) for net in self.msd]}


class PeriodDiscriminator(nn.Module):
    """Folds audio by a period, and looks at each phase of it."""

    def __init__(self, period: int, inputs: int, layers: Sequence[ConvSize]) -> None:
        super().__init__()
        self.period = period
        self.convs = nn.ModuleList()
        for layer in layers:
            padding = (layer.kernel // 2, 0)
            self.convs.append(nn.Conv2d(inputs, layer.channels, (layer.kernel, 1), (layer.stride, 1), padding))
            inputs = layer.channels
        self.last = nn.Conv2d(inputs, 1, (3, 1), padding=(1, 0))

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        padded = F.pad(audio, (0, -audio.shape[2] % self.period), mode="reflect")
        return _logits(padded.unflatten(2, (-1, self.period)), self.convs, self.last)


class ScaleDiscriminator(nn.Module):
    """Reads audio that `pool` has averaged."""

    def __init__(self, pool: nn.Module, inputs: int, layers: Sequence[ConvSize], wrap: Wrap = identity_wrap) -> None:
        super().__init__()
        self.pool = pool
        self.convs = nn.ModuleList()
        for channels, kernel, stride, groups in layers:
            self.convs.append(wrap(nn.Conv1d(inputs, channels, kernel, stride, kernel // 2, groups=groups)))
            inputs = channels
        self.last = wrap(nn.Conv1d(inputs, 1, 3, padding=1))

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        return _logits(self.pool(audio), self.convs, self.last)


def _logits(h: Tensor, convs: Any, last: nn.Module) -> tuple[Tensor, list[Tensor]]:
    """Return logits (B, n) and the features of each layer."""
    features = []
    for conv in convs:
        h = F.leaky_relu(conv(h), _SLOPE)
        features.append(h)
    return at_least_float32(last(h)).flatten(1), features
