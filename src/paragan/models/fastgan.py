"""FastGAN (Liu et al. 2021, "Towards faster and stabilized GAN training for high-fidelity few-shot image synthesis").

A light generator for few images. A small map excites a large one: it scales the channels of the map that is 16 times
its size (skip-layer excitation, equations 1 and 2). D is also an encoder: small decoders rebuild real images from its
maps (penalty `reconstruction`; loss `hinge`). Layers and widths are those of the authors' code. Differences from it: G
ends in tanh at every size (theirs at 1024); no second output of 128 px, so that D's small branch reads every second,
fourth, … pixel of fakes, as of real images; noise is fixed in evaluation. Other sizes than 256, 512, 1024 px and labels
are ours: class-conditional norms in G, a projection in D. Parameters of G / D (RGB, no labels): 128 px 28,959,430 /
11,423,200; 256 px 29,127,654 / 11,526,160; 512 px 29,174,200 / 11,526,496; 1024 px 29,176,320 / 11,528,192.
"""

from dataclasses import dataclass
from itertools import chain, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.option_types import Count
from paragan.core.outputs import DiscriminatorOutput
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.blocks import ImageOutput, run_blocks
from paragan.layers.conditional_norm import batch_norm, check_labels
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.quarters import take_quarter
from paragan.layers.resample import UpConv2d
from paragan.layers.spectral_norm import spectral_norm
from paragan.models._block_networks import BlockDiscriminator, BlockGenerator
from paragan.models._checks import MapSizes, map_sizes
from paragan.models._options import NetworkOptions, WeightInit
from paragan.models._style import Noise

_SLOPE = 0.2
_G_WIDTHS = (16, 8, 4, 2, 2, 1, 1 / 2, 1 / 4, 1 / 8)  # of maps of 4, 8, … 1024 px, in units of `width`
_DECODER_WIDTHS = (4, 2, 2, 1)  # of a decoder's maps, in units of half of `width`
_EXCITED = range(4, 8)  # doublings of the excited maps of G: 64 to 512 px
_LAST = 1  # doublings from 4 px to D's last map: 8 px
_D_HALVINGS = 5  # from D's first map (256 px) to its last, after strided layers for larger images
_SMALL = 5  # doublings from 4 px to the largest image that D's small branch and the decoders have: 128 px

Maps = tuple[Tensor, ...]
State = tuple[Tensor, Tensor | None, Maps]  # of D: the small image, `part_B`, the last three maps


@dataclass(frozen=True, kw_only=True)
class Options(NetworkOptions):
    """FastGAN's sizes, labels and noise."""

    weight_init: WeightInit = "normal_0.02"
    """Scheme of the initial weights; `torch` leaves the layers' defaults."""
    latent: Count = 256
    """Length of the latent vector z."""
    width: Count = 64
    """Channels of G's map of 128 px and of D's of 64 px; other maps have a multiple or a part of it."""
    conditional: bool | None = False
    noise: bool = True
    """Whether noise is added per pixel."""


class Generator(BlockGenerator):
    """FastGAN's generator: z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        self.weight_init = options.weight_init
        self.latent = options.latent
        sizes = map_sizes(shape)
        widths = [max(1, int(factor * options.width)) for factor in _G_WIDTHS[: sizes.doublings + 1]]
        start = LatentStart(options.latent, widths[0], sizes.lowest, self.num_classes)
        stages = [_stage(options, widths, number, sizes, self.num_classes) for number in range(1, len(widths))]
        self.blocks = nn.ModuleList([start, *stages, LastMapOutput(widths[-1], shape[0])])


class Discriminator(BlockDiscriminator):
    """FastGAN's D: x_BCHW (and y_B) to logits (B, patches) and features (mean of the last map).

    With part_B, a number from 0 to 3 per image (upper left, upper right, lower left, lower right), the features are
    instead what the decoders rebuild: the whole image, the small one, and that quarter of it, each of 128 px or less.
    """

    reconstructs = True

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        self.weight_init = options.weight_init
        sizes = map_sizes(shape)
        first = min(sizes.doublings - _LAST, _D_HALVINGS)
        widths = [max(1, (8 * options.width) >> halvings) for halvings in range(first + 1)][::-1]
        start = ImageStart(shape[0], widths[0], sizes.doublings, options.width)
        downs = [
            HalvingBlock(a, b, Excitation(widths[step - 2], b, sizes.lowest) if step >= 2 else None)  # by maps[-3]
            for step, (a, b) in enumerate(pairwise(widths))
        ]
        self.blocks = nn.ModuleList([start, *downs, EncoderHead(options, widths, shape, self.num_classes)])

    def forward(self, x_BCHW: Tensor, y_B: Tensor | None = None, part_B: Tensor | None = None) -> DiscriminatorOutput:
        inputs = x_BCHW if part_B is None else (x_BCHW, part_B)
        return DiscriminatorOutput.of(run_blocks(self.blocks, inputs, y_B))


class Excitation(nn.Module):
    """Skip-layer excitation: factors in (0, 1) for the channels of a large map, from a small one (equation 2).

    Mean over cells, convolution of all cells, SiLU (as the authors; leaky ReLU in the paper's figure), 1x1, sigmoid.
    """

    def __init__(self, inputs: int, outputs: int, cells: tuple[int, int]) -> None:
        super().__init__()
        self.cells = cells
        self.gather = spectral_norm(nn.Conv2d(inputs, outputs, cells, bias=False))
        self.scale = spectral_norm(nn.Conv2d(outputs, outputs, 1, bias=False))

    def forward(self, small: Tensor, large: Tensor) -> Tensor:
        h = F.avg_pool2d(small, small.shape[2] // self.cells[0])
        return large * self.scale(F.silu(self.gather(h))).sigmoid()


class GatedNorm(nn.Module):
    """Noise (if any), batch norm and a gated linear unit, which halves the channels."""

    def __init__(self, outputs: int, classes: int = 0, noise: Noise | None = None) -> None:
        super().__init__()
        self.noise = noise
        self.norm = batch_norm(2 * outputs, classes)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        value, gate = self.norm(h if self.noise is None else h + self.noise(h), y_B).chunk(2, 1)
        # not F.glu: its gradient has another layout than channels-last maps, which makes batch norm five times slower
        return value * gate.sigmoid()


class LatentStart(nn.Module):
    """Smallest map from latents: a transposed convolution of one pixel, and a gated norm."""

    def __init__(self, latent: int, outputs: int, size: tuple[int, int], classes: int) -> None:
        super().__init__()
        self.conv = spectral_norm(nn.ConvTranspose2d(latent, 2 * outputs, size, bias=False))
        self.gate = GatedNorm(outputs, classes)

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None) -> Maps:
        return (self.gate(self.conv(z_BZ[:, :, None, None]), y_B),)


class DoublingBlock(nn.Module):
    """Doubling, 3x3, a gated norm, maybe 3x3 and norm again; then the excitation, if any, by the first of four maps."""

    def __init__(self, convs: list[nn.Module], gates: list[GatedNorm], excite: Excitation | None) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.gates = nn.ModuleList(gates)
        self.excite = excite

    def forward(self, maps: Maps, y_B: Tensor | None = None) -> Maps:
        h = maps[-1]
        for conv, gate in zip(self.convs, self.gates, strict=True):
            h = gate(conv(h), y_B)
        if self.excite is not None:
            h = self.excite(maps[-4], h)
        return (*maps, h)[-4:]


class LastMapOutput(nn.Module):
    """Image from the last map."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.image = ImageOutput(inputs, channels, spectral_norm, bias=False)

    def forward(self, maps: Maps, y_B: Tensor | None = None) -> Tensor:
        return self.image(maps[-1])


class ImageStart(nn.Module):
    """First map of D, of 256 px or less: 3x3, or 4x4 of stride two once (512 px) or twice (1024 px)."""

    def __init__(self, colours: int, outputs: int, doublings: int, width: int) -> None:
        super().__init__()
        self.stride = 2 ** max(0, doublings - _SMALL)  # of the small image's pixels
        halvings = max(0, doublings - _LAST - _D_HALVINGS)  # 0 up to 256 px, 1 at 512 px, 2 at 1024 px
        widths = [outputs] if halvings < 2 else [max(1, width // 8), outputs]
        same = [_conv(colours, outputs, 3, 1, 1), nn.LeakyReLU(_SLOPE)]
        self.layers = nn.Sequential(*(_strided([colours, *widths]) if halvings else same))

    def forward(self, x: Tensor | tuple[Tensor, Tensor], y_B: Tensor | None = None) -> State:
        image, part_B = (x, None) if isinstance(x, Tensor) else x
        return image[:, :, :: self.stride, :: self.stride], part_B, (self.layers(image),)


class HalvingBlock(nn.Module):
    """Mean of two paths to half the size, and the excitation, if any, by the map of eight times the new size."""

    def __init__(self, inputs: int, outputs: int, excite: Excitation | None) -> None:
        super().__init__()
        strided = _normed(_conv(inputs, outputs, 4, 2, 1), outputs)
        self.main = nn.Sequential(*strided, *_normed(_conv(outputs, outputs, 3, 1, 1), outputs))
        self.direct = nn.Sequential(nn.AvgPool2d(2), *_normed(_conv(inputs, outputs, 1), outputs))
        self.excite = excite

    def forward(self, state: State, y_B: Tensor | None = None) -> State:
        small, part_B, maps = state
        h = (self.main(maps[-1]) + self.direct(maps[-1])) / 2
        if self.excite is not None:
            h = self.excite(maps[-3], h)
        return small, part_B, (*maps, h)[-3:]


class EncoderHead(nn.Module):
    """Last block of D: logits of both branches, features, and what the decoders rebuild."""

    def __init__(self, options: Options, widths: list[int], shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        doublings = map_sizes(shape).doublings
        last = widths[-1]
        before_last = widths[-2:][0]  # or the last, at 8 px, where D has one map
        whole = min(doublings, _SMALL) - _LAST  # doublings of D's last map to the image, of at most 128 px
        quarter = max(0, min(doublings - 1, _SMALL) - _LAST)  # to a quarter of the image, half as large
        halvings = max(1, whole)  # of the small image: its last map is as large as D's last one, at 8 px half of it
        half = [max(1, (4 * options.width) >> number) for number in range(halvings)][::-1]
        self.branch = nn.Sequential(*_strided([shape[0], *half]))
        self.logits = PatchLogits(last, 2 * last, classes)
        self.small_logits = PatchLogits(half[-1], None)
        inputs = ((last, whole), (half[-1], halvings), (before_last, quarter))  # as `encoded` below
        self.decoders = nn.ModuleList([MapDecoder(a, number, options.width // 2, shape[0]) for a, number in inputs])

    def forward(self, state: State, y_B: Tensor | None = None) -> tuple[Tensor, Tensor | Maps]:
        image, part_B, maps = state
        small = self.branch(image)
        logits_BP = torch.cat([self.logits(maps[-1], y_B), self.small_logits(small)], 1)
        if part_B is None:
            return logits_BP, at_least_float32(maps[-1]).mean((2, 3))
        encoded = (maps[-1], small, take_quarter(maps[-2:][0], part_B))
        return logits_BP, tuple(decode(h) for decode, h in zip(self.decoders, encoded, strict=True))


class PatchLogits(nn.Module):
    """4x4 convolution of a map to logits of patches (B, P), in at least float32.

    hidden: channels of a 1x1 convolution before it; None: without it. classes: the projection of the
    label on the mean of the map is added to each.
    """

    keeps_float32 = True

    def __init__(self, inputs: int, hidden: int | None, classes: int = 0) -> None:
        super().__init__()
        layers = [] if hidden is None else _normed(_conv(inputs, hidden, 1), hidden)
        self.layers = nn.Sequential(*layers, _conv(inputs if hidden is None else hidden, 1, 4))
        self.embed = spectral_norm(nn.Embedding(classes, inputs)) if classes else None

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        with autocast_off(h):
            h = at_least_float32(h)
            logits_BP: Tensor = self.layers(h).flatten(1)
            if self.embed is None:
                return logits_BP
            towards = self.embed(check_labels(y_B, len(h))) * h.mean((2, 3))
            return logits_BP + towards.sum(1, keepdim=True)


class MapDecoder(nn.Module):
    """Map to an image of `doublings` doublings in [-1, 1], at least float32: 3x3 convolutions and gated norms."""

    def __init__(self, inputs: int, doublings: int, width: int, colours: int) -> None:
        super().__init__()
        widths = [inputs, *(max(1, factor * width) for factor in _DECODER_WIDTHS[:doublings])]
        ups = [(spectral_norm(UpConv2d(a, 2 * b, bias=False)), GatedNorm(b)) for a, b in pairwise(widths)]
        self.layers = nn.Sequential(*chain.from_iterable(ups), _conv(widths[-1], colours, 3, 1, 1))

    def forward(self, h: Tensor) -> Tensor:
        return at_least_float32(self.layers(h)).tanh()


def _stage(options: Options, widths: list[int], number: int, sizes: MapSizes, classes: int) -> DoublingBlock:
    """Return the block of G whose map is the smallest one doubled `number` times; every other one has two layers."""
    width = widths[number]
    convs = [spectral_norm(UpConv2d(widths[number - 1], 2 * width, bias=False))]
    noises: list[Noise | None] = [None]
    if number % 2:
        convs.append(_conv(width, 2 * width, 3, 1, 1))
        noises = [Noise(sizes.size(number)) if options.noise else None for _ in convs]
    gates = [GatedNorm(width, classes, noise) for noise in noises]
    excite = Excitation(widths[number - 4], width, sizes.lowest) if number in _EXCITED else None
    return DoublingBlock(convs, gates, excite)


def _strided(widths: list[int]) -> list[nn.Module]:
    """Return 4x4 convolutions of stride two, each with an activation, and with a norm but for the first."""
    first = [_conv(widths[0], widths[1], 4, 2, 1), nn.LeakyReLU(_SLOPE)]
    others = [_normed(_conv(a, b, 4, 2, 1), b) for a, b in pairwise(widths[1:])]
    return [*first, *chain.from_iterable(others)]


def _normed(conv: nn.Module, outputs: int) -> list[nn.Module]:
    return [conv, AffineBatchNorm(outputs), nn.LeakyReLU(_SLOPE)]


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0) -> nn.Module:
    return spectral_norm(nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False))
