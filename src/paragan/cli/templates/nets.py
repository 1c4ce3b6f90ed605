"""Two small convolutional networks of mygan, for images whose sides are divisible by four."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

# nn.BatchNorm2d whose statistics are fixed in the other network's turn
from paragan.layers.batch_norm import AffineBatchNorm


@dataclass(frozen=True)
class Options:
    """Settings `model.…`. `config --explain` prints the line below each."""

    latent: int = 64
    """Length of the latent vector z."""
    width: int = 32
    """Channels at half resolution."""


class Generator(nn.Module):
    """Generator: latents (B, latent) to images (B, C, H, W) in [-1, 1]. y: classes, if used."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        self.latent = options.latent
        self.num_classes = 0  # neither network receives labels
        channels, height, width = shape
        n = options.width
        self.layers = nn.Sequential(
            nn.Linear(options.latent, 2 * n * (height // 4) * (width // 4)),
            nn.ReLU(),
            nn.Unflatten(1, (2 * n, height // 4, width // 4)),
            AffineBatchNorm(2 * n),
            nn.ConvTranspose2d(2 * n, n, 4, stride=2, padding=1),
            AffineBatchNorm(n),
            nn.ReLU(),
            nn.ConvTranspose2d(n, channels, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.layers(z)


class Discriminator(nn.Module):
    """Discriminator: images (B, C, H, W) to one logit each (B,). y: their classes, if used."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        channels, height, width = shape
        n = options.width
        self.layers = nn.Sequential(
            nn.Conv2d(channels, n, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(n, 2 * n, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(2 * n * (height // 4) * (width // 4), 1),
        )

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return self.layers(x).squeeze(1)
