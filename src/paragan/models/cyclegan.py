"""CycleGAN (Zhu et al. 2017): translation between images of two kinds, A and B, without pairs.

Both translators are G, both discriminators D, and one step trains all four. Images lie side by side, A at the left and
B at the right (data `unpaired`). The translators are the residual networks of the paper's appendix 7.2 (Johnson et al.
2016) and D is PatchGAN, all with instance norm. The defaults are a small version. At the paper's sizes a translator has
11,378,179 parameters and a discriminator 2,763,841: without the 896 biases before instance norm, which removes them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paragan.core.errors import DataError
from paragan.core.option_types import Count
from paragan.core.outputs import GeneratorOutput
from paragan.layers.precision import at_least_float32
from paragan.models._checks import check_image_size
from paragan.models._options import WeightInit
from paragan.models.pix2pix import MIN_PATCHED, patch_layers

SAMPLE = "both"  # the tensor that G generates, for `build.data`


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes of all four networks."""

    width: Count = 16
    """Channels of the first layer of a translator and of a discriminator, doubled at each halving; the paper: 64."""
    blocks: Count = 3
    """Residual blocks of a translator; the paper: 6 at 128 px, 9 from 256 px on."""
    identity: bool = True
    """Whether each translator is also called on images of its own kind, for the identity loss (section 5.2)."""
    d_halvings: Count = 2
    """Halvings before a discriminator's patches; the paper: 3, for patches of 70x70."""
    weight_init: WeightInit = "normal_0.02"
    """Scheme of the initial weights; `torch` leaves the layers' defaults."""


class Generator(nn.Module):
    """`both` (B, C, H, 2W) in [-1, 1] to its translation: A made of the right half, B of the left one.

    `extra` has `cycle`, both translated back, and `identity`, both translated to their own kind.
    """

    latent = 0  # no z: it is called with the images of a batch
    input_multiple = 4  # to which `apply` pads images

    def __init__(self, options: Options, shape: tuple[int, ...], num_classes: int = 0) -> None:
        super().__init__()
        if len(shape) != 3 or shape[2] % 2:
            raise DataError(f"cyclegan needs two images side by side, not samples of shape {shape}; use data unpaired")
        check_image_size((*shape[:2], shape[2] // 2), self.input_multiple)
        self.weight_init = options.weight_init
        self.has_identity = options.identity
        self.to_a = translator(shape[0], options.width, options.blocks)
        self.to_b = translator(shape[0], options.width, options.blocks)

    @property
    def directions(self) -> dict[str, nn.Module]:
        """The translators by name, each of images (B, C, H, W) of any multiple of 4."""
        return {"a_to_b": self.to_b, "b_to_a": self.to_a}

    def forward(self, both: Tensor) -> GeneratorOutput:
        a, b = both.chunk(2, dim=3)
        fake_a = self.to_a(b)
        fake_b = self.to_b(a)
        extra = {"cycle": torch.cat([self.to_a(fake_b), self.to_b(fake_a)], 3)}
        if self.has_identity:
            extra["identity"] = torch.cat([self.to_a(a), self.to_b(b)], 3)
        return GeneratorOutput(torch.cat([fake_a, fake_b], 3), extra)


class Discriminator(nn.Module):
    """`both` to patch logits (B, h, w) of its halves, outputs `a` and `b`."""

    def __init__(self, options: Options, shape: tuple[int, ...], num_classes: int = 0) -> None:
        super().__init__()
        self.weight_init = options.weight_init
        check_image_size((*shape[:2], shape[2] // 2), min_side=MIN_PATCHED << options.d_halvings)
        self.of_a = nn.Sequential(*patch_layers(shape[0], options.width, options.d_halvings, nn.InstanceNorm2d))
        self.of_b = nn.Sequential(*patch_layers(shape[0], options.width, options.d_halvings, nn.InstanceNorm2d))

    def forward(self, both: Tensor) -> dict[str, Tensor]:
        a, b = both.chunk(2, dim=3)
        return {"a": self.of_a(a)[0], "b": self.of_b(b)[0]}


def translator(channels: int, width: int, blocks: int) -> nn.Sequential:
    """Return c7s1-w, d2w, d4w, residual blocks, u2w, uw, c7s1-C, in the paper's notation."""
    layers: list[nn.Module] = [nn.ReflectionPad2d(3), *_normed(nn.Conv2d(channels, width, 7))]
    for factor in (1, 2):
        layers += _normed(nn.Conv2d(factor * width, 2 * factor * width, 3, 2, 1))
    layers += [ReflectedResidual(4 * width) for _ in range(blocks)]
    for factor in (4, 2):
        up = nn.ConvTranspose2d(factor * width, factor * width // 2, 3, 2, 1, output_padding=1)
        layers += _normed(up)
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, channels, 7), Tanh())


class ReflectedResidual(nn.Module):
    """Two 3x3 convolutions with reflection padding and instance norm, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        first = _normed(nn.Conv2d(width, width, 3))
        second = _normed(nn.Conv2d(width, width, 3))[:-1]
        self.layers = nn.Sequential(nn.ReflectionPad2d(1), *first, nn.ReflectionPad2d(1), *second)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.layers(h)


class Tanh(nn.Module):
    """tanh in float32 or more."""

    def forward(self, h: Tensor) -> Tensor:
        return at_least_float32(h).tanh()


def _normed(conv: nn.Module) -> list[nn.Module]:
    width = conv.out_channels
    assert isinstance(width, int)
    return [conv, nn.InstanceNorm2d(width), nn.ReLU()]
