"""Fully connected pair, the usual first GAN on MNIST: leaky ReLU, tanh, logits; any image shape.

At 1x28x28 the defaults are G 100-256-512-1024-784 with 1,486,352 and D 784-512-256-1 with 533,505 parameters. With
labels, both get a learnt class vector (num_classes wide) next to their input (Mirza & Osindero 2014, section 3.2).
"""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.option_types import Count
from paragan.layers.conditional_norm import check_labels
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.models._block_networks import BlockDiscriminator, BlockGenerator
from paragan.models._options import NetworkOptions, WeightInit


@dataclass(frozen=True, kw_only=True)
class Options(NetworkOptions):
    """Hidden layers of both networks."""

    weight_init: WeightInit = "torch"
    """Scheme of the initial weights; `torch` leaves the layers' defaults."""
    latent: Count = 100
    """Length of the latent vector z."""
    g_widths: tuple[Count, ...] = (256, 512, 1024)
    """Units of G's hidden layers, from z to the image."""
    d_widths: tuple[Count, ...] = (512, 256)
    """Units of D's hidden layers, from the image to the logit."""
    conditional: bool | None = False


class Generator(BlockGenerator):
    """Fully connected generator: z_BZ (and y_B) to x_BCHW in [-1, 1]."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        self.weight_init = options.weight_init
        self.latent = options.latent
        widths = (options.latent, *options.g_widths)
        self.blocks = nn.ModuleList([*_hidden(widths, self.num_classes), ImageLayer(widths[-1], shape)])


class Discriminator(BlockDiscriminator):
    """Fully connected D: x_BCHW (and y_B) to logits and features (the last hidden layer)."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__(options, num_classes)
        self.weight_init = options.weight_init
        widths = (prod(shape), *options.d_widths)
        self.blocks = nn.ModuleList([*_hidden(widths, self.num_classes), LogitLayer(widths[-1])])


class Dense(nn.Module):
    """Hidden layer: flatten, append the class vector if conditional, linear, leaky ReLU 0.2."""

    def __init__(self, inputs: int, outputs: int, classes: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(classes, classes) if classes else None
        self.linear = nn.Linear(inputs + classes, outputs)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        h = h.flatten(1)
        if self.embed is not None:
            h = torch.cat([h, self.embed(check_labels(y_B, len(h))).to(h.dtype)], 1)
        return F.leaky_relu(self.linear(h), 0.2, inplace=True)


class ImageLayer(nn.Module):
    """Last layer of the generator: linear, tanh, image shape."""

    def __init__(self, inputs: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.shape = shape
        self.linear = nn.Linear(inputs, prod(shape))

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> Tensor:
        return at_least_float32(self.linear(h)).tanh().unflatten(1, self.shape)


class LogitLayer(nn.Module):
    """Last layer of the discriminator: (logits_B, features_BF), in at least float32."""

    keeps_float32 = True

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, 1)

    def forward(self, h: Tensor, y_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with autocast_off(h):
            features_BF = at_least_float32(h)
            return self.linear(features_BF).squeeze(1), features_BF


def _hidden(widths: tuple[int, ...], classes: int) -> list[nn.Module]:
    """Return the hidden layers; only the first gets the labels."""
    return [Dense(a, b, 0 if number else classes) for number, (a, b) in enumerate(pairwise(widths))]
