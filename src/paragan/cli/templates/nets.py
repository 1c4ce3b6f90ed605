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
    """Generator: latents (B, latent) to images (B, C, H, W) in [-1, 1]. y: labels, not given."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        self.latent = options.latent
        self.num_classes = 0  # so neither network is given labels
        channels, height, width = shape
        n = options.width
        linear = nn.Linear(options.latent, 2 * n * (height // 4) * (width // 4))
        maps = nn.Unflatten(1, (2 * n, height // 4, width // 4))
        half = nn.ConvTranspose2d(2 * n, n, 4, stride=2, padding=1)
        full = nn.ConvTranspose2d(n, channels, 4, stride=2, padding=1)
        self.layers = nn.Sequential(
            linear, nn.ReLU(), maps, AffineBatchNorm(2 * n), half, AffineBatchNorm(n), nn.ReLU(), full, nn.Tanh()
        )

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.layers(z)


class Discriminator(nn.Module):
    """Discriminator: images (B, C, H, W) to one logit each (B,). y: labels, not given."""

    def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:
        super().__init__()
        channels, height, width = shape
        n = options.width
        half = nn.Conv2d(channels, n, 4, stride=2, padding=1)
        quarter = nn.Conv2d(n, 2 * n, 4, stride=2, padding=1)
        logit = nn.Linear(2 * n * (height // 4) * (width // 4), 1)
        self.layers = nn.Sequential(half, nn.LeakyReLU(0.2), quarter, nn.LeakyReLU(0.2), nn.Flatten(), logit)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return self.layers(x).squeeze(1)
