"""A WGAN-GP as a user brings it: two networks that know no labels."""

from __future__ import annotations

from torch import nn


class Generator(nn.Module):
    latent, num_classes = 64, 0

    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(64, 64 * 16), nn.Unflatten(1, (64, 4, 4)), nn.BatchNorm2d(64), nn.ReLU()),
            *(nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.ConvTranspose2d(16, shape[0], 4, 2, 1), nn.Tanh()),
        )

    def forward(self, z):
        return self.layers(z)


class Discriminator(nn.Module):
    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(shape[0], 16, 4, 2, 1), nn.LeakyReLU(0.2)),
            *(nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2)),
            *(nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64 * 16, 1)),
        )

    def forward(self, x):
        return self.layers(x)[:, 0]
