"""A model outside the package: two linear layers each."""

import math
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Options:
    hidden: int = 16
    """Width of the hidden layer."""


class Generator(nn.Module):
    latent = 4

    def __init__(self, options, shape, num_classes):
        super().__init__()
        layers = nn.Linear(4, options.hidden), nn.ReLU(), nn.Linear(options.hidden, math.prod(shape))
        self.net = nn.Sequential(*layers, nn.Tanh(), nn.Unflatten(1, shape))

    def forward(self, z, y=None):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, options, shape, num_classes):
        super().__init__()
        layers = nn.Linear(math.prod(shape), options.hidden), nn.ReLU(), nn.Linear(options.hidden, 1)
        self.net = nn.Sequential(nn.Flatten(), *layers)

    def forward(self, x, y=None):
        return self.net(x)
