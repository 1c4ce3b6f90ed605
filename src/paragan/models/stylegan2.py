"""StyleGAN2 (Karras et al. 2020).

A mapping network turns a latent into a style that scales the channels of every layer; each resolution adds to the
image; D has residual blocks and minibatch standard deviation. In pure torch. Conditional as in Karras et al. 2020,
"Training generative adversarial networks with limited data", appendix. Trained with the loss `nonsaturating` and the
penalties `r1` and `path_length`. Images are not confined to [-1, 1] in training. Parameters (G / D), three colours:
1024 px 30,370,060 / 29,012,513; 256 px with base 16384 24,767,458 / 24,001,089; 128 px with base 16384 and mapping 2
22,949,277 / 23,882,369, of 1000 classes 23,723,933 / 26,758,272 or, with head contrast, 31,179,393; 32 px, 10 classes,
mapping 2, residual false 20,215,315 / 23,089,664.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import prod, sqrt
from typing import Literal, cast

import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.option_types import Count, Fraction
from paragan.layers.blocks import run_blocks
from paragan.layers.equalised import GAIN, EqualConv2d, EqualLinear, leaky_relu_
from paragan.layers.minibatch_std import MinibatchStd
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.resample import blur
from paragan.models._block_networks import BlockDiscriminator, BlockGenerator
from paragan.models._checks import MapSizes, map_sizes
from paragan.models._heads import CONTRASTIVE_PENALTIES, stack_points
from paragan.models._options import NetworkOptions
from paragan.models._style import (
    ClassVector,
    ConstantInput,
    Mapping,
    StyledConv,
    SynthesisBlock,
    ToImage,
    mapping_layers,
)

_CENTRE = 4096  # latents for the mean style


@dataclass(frozen=True, kw_only=True)
class Options(NetworkOptions):
    """Sizes, noise and labels of StyleGAN2."""

    latent: Count = 512
    """Length of the latent vector z."""
    style: Count = 512
    """Length of the style vector w."""
    mapping: Count = 8
    """Layers of the mapping network (the paper: 8; 2 for small images)."""
    width: Count = 512
    """Largest number of channels of a feature map."""
    base: Count = 32768
    """Channels of a feature map of (shorter) side s: base / s, at most `width`."""
    mixing: Fraction = 0.9
    """Share of the images that mix the styles of two latents."""
    noise: bool = True
    """Whether noise is added per pixel."""
    residual: bool = True
    """Whether D's blocks have short-cuts (the paper: yes; for 32 px: no)."""
    group: Count = 4
    """Images of a batch that minibatch standard deviation compares."""
    head: Literal["projection", "contrast"] = "projection"
    """Use of labels in D: `projection` adds a class term to the logit; `contrast` embeds classes.

    `contrast` is ReACGAN's StyleGAN2, with the penalty `data_to_data`; its embeddings are four times
    as long as D's last map is wide.
    """


class Generator(BlockGenerator):
    """StyleGAN2's G: z_BZ (and y_B) to x_BCHW. shift_BLW: style offset, (L, W) being `styles`."""

    bounded = False

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        self.latent = options.latent
        sizes = map_sizes(shape)
        widths = _widths(options, sizes)
        self.styles = (2 * len(widths), options.style)  # of 2 n - 1 convolutions, and the colours of the last image
        mapping = Mapping(
            latent=options.latent,
            length=options.style,
            classes=self.num_classes,
            depth=options.mapping,
            num=self.styles[0],
            mixing=options.mixing,
        )
        stages = [_stage(options, widths, n, sizes.size(n), shape[0]) for n in range(len(widths))]
        self.blocks = nn.ModuleList([mapping, ConstantInput(widths[0], sizes.lowest), *stages])

    def forward(self, z_BZ: Tensor, y_B: Tensor | None = None, shift_BLW: Tensor | None = None) -> Tensor:
        w_BLW = self.blocks[0](z_BZ, y_B)
        return run_blocks(self.blocks[1:], w_BLW if shift_BLW is None else w_BLW + shift_BLW, y_B)

    @torch.no_grad()
    def truncation_shift(self, z_BZ: Tensor, y_B: Tensor | None, psi: float) -> Tensor:
        """Return the offset that moves styles to `psi` of the way from the class' mean style.

        Images become more typical and less varied (Karras et al. 2019, appendix, section 2).
        """
        mapping = cast(Mapping, self.blocks[0])
        draws = rng.generator("stylegan2/centre")
        drawn_NZ = torch.randn(_CENTRE, self.latent, generator=draws).to(z_BZ)
        # without classes there is one mean style, that of "class" 0
        class_B = y_B if self.num_classes and y_B is not None else torch.zeros(len(z_BZ), dtype=torch.int64)
        mean_KW = z_BZ.new_empty(max(1, self.num_classes), self.styles[1])
        for number in class_B.unique().tolist():
            y_N = torch.full((_CENTRE,), number, device=z_BZ.device) if self.num_classes else None
            mean_KW[number] = mapping.style(drawn_NZ, y_N).mean(0)
        shift: Tensor = (psi - 1) * (mapping.style(z_BZ, y_B) - mean_KW[class_B.to(z_BZ.device)])
        return shift.unsqueeze(1).expand(-1, self.styles[0], -1)

    @torch.no_grad()
    def mixing_shift(self, z_BZ: Tensor, other_BZ: Tensor, y_B: Tensor | None, layer: int) -> Tensor:
        """Return the offset that moves the styles of `layer` and the later ones to those of other latents.

        The first layers set pose and shape, the last ones colours (Karras et al. 2019, section 3.1).
        """
        mapping = cast(Mapping, self.blocks[0])
        shift = z_BZ.new_zeros(len(z_BZ), *self.styles)
        shift[:, layer:] = (mapping.style(other_BZ, y_B) - mapping.style(z_BZ, y_B)).unsqueeze(1)
        return shift


class Discriminator(BlockDiscriminator):
    """StyleGAN2's D: x_BCHW (and y_B) to logits and features (last hidden layer) or embeddings."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        sizes = map_sizes(shape)
        widths = _widths(options, sizes)[::-1]
        halves = [BlurDownBlock(a, b, options.residual) for a, b in pairwise(widths)]
        head = _head(options, widths[-1], self.num_classes)
        end = MinibatchStdHead(widths[-1], sizes.lowest, options.group, head)
        self.blocks = nn.ModuleList([FromImage(shape[0], widths[0]), *halves, end])


class FromImage(nn.Module):
    """1x1 convolution from colours to the first map."""

    def __init__(self, colours: int, channels: int) -> None:
        super().__init__()
        self.conv = EqualConv2d(colours, channels, 1, gain=GAIN)

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        return leaky_relu_(self.conv(x))


class BlurDownBlock(nn.Module):
    """3x3, blur, 3x3 of stride two; residual: plus a short-cut of blur and 1x1 of stride two."""

    def __init__(self, inputs: int, outputs: int, residual: bool) -> None:
        super().__init__()
        share = sqrt(0.5) if residual else 1.0  # scale of each of two summands
        self.conv1 = EqualConv2d(inputs, inputs, 3, gain=GAIN)
        self.conv2 = EqualConv2d(inputs, outputs, 3, gain=GAIN * share, halves=True)
        self.shortcut = EqualConv2d(inputs, outputs, 1, bias=False, gain=share) if residual else None

    def forward(self, x: Tensor, y_B: Tensor | None = None) -> Tensor:
        # padded so that both paths halve a side of 2 n: by a blur to 2 n + 1 for the 3x3 of stride two, or a blur to n
        h = leaky_relu_(self.conv2(blur(leaky_relu_(self.conv1(x)), before=2, after=2)))
        return h if self.shortcut is None else h + self.shortcut(blur(x, before=1, after=1, stride=2))


class MinibatchStdHead(nn.Module):
    """Last map to features, then to the outputs of `head`, in at least float32."""

    keeps_float32 = True

    def __init__(self, channels: int, size: tuple[int, int], group: int, head: nn.Module) -> None:
        super().__init__()
        self.spread = MinibatchStd(group)
        self.conv = EqualConv2d(channels + 1, channels, 3, gain=GAIN)
        self.linear = EqualLinear(channels * prod(size), channels, gain=GAIN)
        self.head = head

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with autocast_off(h):
            h = leaky_relu_(self.conv(self.spread(at_least_float32(h))))
            return self.head(leaky_relu_(self.linear(h.flatten(1))), y_B)


class UnconditionalHead(nn.Module):
    """Linear head: features_BF to logits_B, and the features."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.out = EqualLinear(features, 1)

    def forward(self, features_BF: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.out(features_BF).squeeze(1), features_BF


class ClassDirection(nn.Module):
    """Class embedding followed by mapping layers: y_B to (B, length)."""

    def __init__(self, classes: int, length: int, depth: int) -> None:
        super().__init__()
        self.embed = ClassVector(classes, length)
        self.layers = mapping_layers(length, length, depth)

    def forward(self, y_B: Tensor | None, count: int) -> Tensor:
        h = self.embed(y_B, count)
        for layer in self.layers:
            h = leaky_relu_(layer(h))
        return h


class ProjectionHead(nn.Module):
    """Projection head: features_BF to logits_B by the label's direction, and the features."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.out = EqualLinear(features, features)
        self.towards = ClassDirection(classes, features, depth=8)

    def forward(self, features_BF: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        towards = self.towards(y_B, len(features_BF))
        return (self.out(features_BF) * towards).sum(1) / sqrt(towards.shape[1]), features_BF


class ContrastiveHead(nn.Module):
    """Contrastive head: features_BF to logits_B, and embeddings (B, 2, embed) as in `_heads`."""

    trained_by = CONTRASTIVE_PENALTIES

    def __init__(self, features: int, classes: int, embed: int) -> None:
        super().__init__()
        self.out = EqualLinear(features, 1)
        self.project = EqualLinear(features, embed)
        self.towards = ClassDirection(classes, embed, depth=1)

    def forward(self, features_BF: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        points = stack_points(self.project(features_BF), self.towards(y_B, len(features_BF)))
        return self.out(features_BF).squeeze(1), points


def _head(options: Options, features: int, classes: int) -> nn.Module:
    if not classes:
        return UnconditionalHead(features)
    if options.head == "contrast":
        return ContrastiveHead(features, classes, 4 * features)
    return ProjectionHead(features, classes)


def _widths(options: Options, sizes: MapSizes) -> list[int]:
    """Return channels from the smallest map up."""
    return [min(max(1, options.base // side), options.width) for side in sizes.sides]


def _stage(options: Options, widths: list[int], number: int, size: tuple[int, int], colours: int) -> SynthesisBlock:
    """Return one block of G. size: of its map."""
    width = widths[number]
    style = options.style
    convs = [StyledConv(width, width, style, size, up=False, noise=options.noise)]
    if number:
        up = StyledConv(widths[number - 1], width, style, size, up=True, noise=options.noise)
        convs.insert(0, up)
    # The style of its first layer: block 0 has one convolution, the others have two. Colours share the style of the
    # next block's first layer.
    first_layer = 2 * number - 1 if number else 0
    is_last = number == len(widths) - 1
    return SynthesisBlock(convs, ToImage(width, colours, options.style), first_layer, last=is_last)
