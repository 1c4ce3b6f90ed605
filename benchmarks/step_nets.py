"""The same networks as an ordinary user of torch writes them, for `benchmarks/step`: nothing of this library in here.

A convolution after a resize, torch's batch norm with embeddings behind it, torch's spectral norm. Their parameters come
in the order of ours and with the same shapes, so that a test can copy them:
`tests/unit/benchmarks/test_step_bench.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

Wrap = Callable[[nn.Module], nn.Module]


def unwrapped(module: nn.Module) -> nn.Module:
    return module


class LabelNorm(nn.Module):
    """Batch norm, then a gain and a bias by label."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.gain, self.bias = nn.Embedding(classes, channels), nn.Embedding(classes, channels)
        nn.init.ones_(self.gain.weight)
        nn.init.zeros_(self.bias.weight)

    def forward(self, x: Tensor, y_B: Tensor) -> Tensor:
        return self.gain(y_B)[:, :, None, None] * self.norm(x) + self.bias(y_B)[:, :, None, None]


class VectorNorm(nn.Module):
    """Batch norm, then a gain and a bias computed from a vector."""

    def __init__(self, channels: int, inputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.gain = spectral_norm(nn.Linear(inputs, channels, bias=False))
        self.bias = spectral_norm(nn.Linear(inputs, channels, bias=False))

    def forward(self, x: Tensor, c_BC: Tensor) -> Tensor:
        return (1 + self.gain(c_BC))[:, :, None, None] * self.norm(x) + self.bias(c_BC)[:, :, None, None]


class Up(nn.Module):
    def __init__(self, inputs: int, outputs: int, norm: Callable[[int], nn.Module], wrap: Wrap) -> None:
        super().__init__()
        self.norm1, self.conv1 = norm(inputs), wrap(nn.Conv2d(inputs, outputs, 3, padding=1))
        self.norm2, self.conv2 = norm(outputs), wrap(nn.Conv2d(outputs, outputs, 3, padding=1))
        self.shortcut = wrap(nn.Conv2d(inputs, outputs, 1))

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        h = self.conv1(F.interpolate(F.relu(self.norm1(x, seen)), scale_factor=2))
        h = self.conv2(F.relu(self.norm2(h, seen)))
        return h + self.shortcut(F.interpolate(x, scale_factor=2))


class Down(nn.Module):
    def __init__(self, inputs: int, outputs: int, down: bool, first: bool) -> None:
        super().__init__()
        self.down, self.first = down, first
        self.conv1 = spectral_norm(nn.Conv2d(inputs, outputs, 3, padding=1))
        self.conv2 = spectral_norm(nn.Conv2d(outputs, outputs, 3, padding=1))
        self.shortcut = spectral_norm(nn.Conv2d(inputs, outputs, 1)) if down or inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv2(F.relu(self.conv1(x if self.first else F.relu(x))))
        if not self.down:
            return h + self.shortcut(x)
        short = self.shortcut(F.avg_pool2d(x, 2)) if self.first else F.avg_pool2d(self.shortcut(x), 2)
        return F.avg_pool2d(h, 2) + short


class Attention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.query, self.key = (spectral_norm(nn.Conv2d(channels, channels // 8, 1, bias=False)) for _ in range(2))
        self.value = spectral_norm(nn.Conv2d(channels, channels // 2, 1, bias=False))
        self.out = spectral_norm(nn.Conv2d(channels // 2, channels, 1, bias=False))
        self.gain = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        query = self.query(x).view(b, -1, h * w)
        key = F.max_pool2d(self.key(x), 2).view(b, -1, h * w // 4)
        value = F.max_pool2d(self.value(x), 2).view(b, -1, h * w // 4)
        weight = F.softmax(torch.bmm(query.transpose(1, 2), key), dim=-1)
        found = torch.bmm(value, weight.transpose(1, 2)).view(b, c // 2, h, w)
        return x + self.gain * self.out(found)


class Paint(nn.Module):
    def __init__(self, inputs: int, channels: int, wrap: Wrap) -> None:
        super().__init__()
        self.conv = wrap(nn.Conv2d(inputs, channels, 3, padding=1))
        self.norm = nn.BatchNorm2d(inputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.conv(F.relu(self.norm(x))))


class SNGenerator(nn.Module):
    """Of SNGAN at 32 px."""

    def __init__(self, width: int, classes: int, latent: int) -> None:
        super().__init__()
        self.linear = nn.Linear(latent, width * 16)
        self.ups = nn.ModuleList(Up(width, width, lambda n: LabelNorm(n, classes), unwrapped) for _ in range(3))
        self.paint = Paint(width, 3, unwrapped)

    def forward(self, z_BZ: Tensor, y_B: Tensor) -> Tensor:
        h = self.linear(z_BZ).view(len(z_BZ), -1, 4, 4)
        for up in self.ups:
            h = up(h, y_B)
        return self.paint(h)


class BigGenerator(nn.Module):
    """Of BigGAN at 32 px, with attention at 16. each: numbers of z for the first map and for every block."""

    def __init__(self, width: int, classes: int, shared: int, each: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(classes, shared)
        self.linear = spectral_norm(nn.Linear(each, width * 16))
        ups = [Up(width, width, lambda n: VectorNorm(n, shared + each), spectral_norm) for _ in range(3)]
        self.blocks = nn.ModuleList([*ups[:2], Attention(width), ups[2]])
        self.paint = Paint(width, 3, spectral_norm)

    def forward(self, z_BZ: Tensor, y_B: Tensor) -> Tensor:
        point, (first, *parts) = self.embed(y_B), z_BZ.chunk(4, 1)
        h = self.linear(first).view(len(z_BZ), -1, 4, 4)
        for block in self.blocks:
            h = block(h) if isinstance(block, Attention) else block(h, torch.cat([point, parts.pop(0)], 1))
        return self.paint(h)


class ResidualDiscriminator(nn.Module):
    """Of both at 32 px. attention: on the 16x16 map."""

    def __init__(self, width: int, classes: int, attention: bool) -> None:
        super().__init__()
        blocks: list[nn.Module] = [
            Down(a, b, number < 2, number == 0) for number, (a, b) in enumerate(pairwise((3, *(width,) * 4)))
        ]
        if attention:
            blocks.insert(1, Attention(width))
        self.blocks = nn.ModuleList(blocks)
        self.linear = spectral_norm(nn.Linear(width, 1))
        self.embed = spectral_norm(nn.Embedding(classes, width))

    def forward(self, x_BCHW: Tensor, y_B: Tensor) -> Tensor:
        h = x_BCHW
        for block in self.blocks:
            h = block(h)
        features_BF = F.relu(h).sum((2, 3))
        return self.linear(features_BF).squeeze(1) + (self.embed(y_B) * features_BF).sum(1)


class UNet(nn.Module):
    """Of pix2pix. levels: halvings, down to one pixel."""

    def __init__(self, width: int, levels: int, dropout: float) -> None:
        super().__init__()
        widths = [width * min(2**level, 8) for level in range(levels)]
        self.down = nn.ModuleList(
            _down(a, b, 2, norm=0 < i < levels - 1) for i, (a, b) in enumerate(pairwise((3, *widths)))
        )
        self.up = nn.ModuleList()
        for i, (a, b) in enumerate(pairwise(widths[::-1])):
            layers = [nn.ConvTranspose2d(a if i == 0 else 2 * a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b)]
            drops = 1 <= i <= 3 and b == 8 * width
            self.up.append(nn.Sequential(*layers, *([nn.Dropout(dropout)] if drops else [])))
        self.last = nn.ConvTranspose2d(2 * width, 3, 4, 2, 1)

    def forward(self, condition: Tensor) -> Tensor:
        h, maps = condition, []
        for down in self.down:
            h = down(h)
            maps.append(h)
        maps.pop()
        for up in self.up:
            h = torch.cat([up(F.relu(h)), maps.pop()], 1)
        return torch.tanh(self.last(F.relu(h)))


class PatchDiscriminator(nn.Module):
    """Of pix2pix, 70x70."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = pairwise((6, width, 2 * width, 4 * width, 8 * width))
        layers = [_down(a, b, 2 if i < 3 else 1, norm=i > 0, bias=i == 0) for i, (a, b) in enumerate(widths)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, 1, 1))

    def forward(self, x_BCHW: Tensor, condition: Tensor) -> Tensor:
        return self.layers(torch.cat([condition, x_BCHW], 1))


def _down(inputs: int, outputs: int, stride: int, norm: bool, bias: bool = False) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, 4, stride, 1, bias=bias)
    return nn.Sequential(conv, *([nn.BatchNorm2d(outputs)] if norm else []), nn.LeakyReLU(0.2))
