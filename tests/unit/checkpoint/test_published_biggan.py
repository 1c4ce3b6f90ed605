"""BigGAN-PyTorch's files: our networks compute what plain modules with its names compute."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paragan.models import biggan
from tests.unit.checkpoint.published_files import assert_same, doubles, filled, randomised

pytestmark = pytest.mark.usefixtures("doubles")
__all__ = ["doubles"]


class Spectral(nn.Module):
    """A layer that divides its weight by u W v, both of one more power iteration than the stored u."""

    def __init__(self, layer):
        super().__init__()
        self.call, self.weight, self.bias = layer.forward, layer.weight, layer.bias if hasattr(layer, "bias") else None
        self.layer = [layer]
        self.register_buffer("u0", F.normalize(torch.randn(1, len(self.weight)), dim=1))
        self.register_buffer("sv0", torch.ones(1))

    def forward(self, x):
        matrix = self.weight.flatten(1)
        v = F.normalize(self.u0 @ matrix)
        sigma = (v @ matrix.T).norm()
        [layer] = self.layer
        return torch.func.functional_call(
            layer, {"weight": self.weight / sigma, **({} if self.bias is None else {"bias": self.bias})}, (x,)
        )


class LabelNorm(nn.Module):
    def __init__(self, width, inputs):
        super().__init__()
        self.gain, self.bias = (Spectral(nn.Linear(inputs, width, bias=False)) for _ in range(2))
        self.register_buffer("stored_mean", torch.zeros(width))
        self.register_buffer("stored_var", torch.ones(width))

    def forward(self, x, c):
        h = F.batch_norm(x, self.stored_mean, self.stored_var)
        return h * (1 + self.gain(c))[:, :, None, None] + self.bias(c)[:, :, None, None]


class PlainNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("stored_mean", torch.zeros(width))
        self.register_buffer("stored_var", torch.ones(width))

    def forward(self, x):
        return F.batch_norm(x, self.stored_mean, self.stored_var, self.gain, self.bias)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        for name, a, b in (("theta", width, width // 8), ("phi", width, width // 8), ("g", width, width // 2)):
            setattr(self, name, Spectral(nn.Conv2d(a, b, 1, bias=False)))
        self.o = Spectral(nn.Conv2d(width // 2, width, 1, bias=False))
        self.gamma = nn.Parameter(torch.tensor(0.0))

    def forward(self, x, c=None):
        theta, phi, g = self.theta(x).flatten(2), F.max_pool2d(self.phi(x), 2).flatten(2), self.g(x)
        beta = (theta.transpose(1, 2) @ phi).softmax(2)
        return x + self.gamma * self.o((F.max_pool2d(g, 2).flatten(2) @ beta.transpose(1, 2)).view_as(g))


class Up(nn.Module):
    def __init__(self, a, b, inputs):
        super().__init__()
        self.conv1, self.conv2 = (Spectral(nn.Conv2d(i, b, 3, padding=1)) for i in (a, b))
        self.conv_sc = Spectral(nn.Conv2d(a, b, 1))
        self.bn1, self.bn2 = LabelNorm(a, inputs), LabelNorm(b, inputs)

    def forward(self, x, c):
        h = self.conv1(F.interpolate(self.bn1(x, c).relu(), scale_factor=2))
        return self.conv2(self.bn2(h, c).relu()) + self.conv_sc(F.interpolate(x, scale_factor=2))


class BigG(nn.Module):
    """64 px; attention where `attends`."""

    def __init__(self, width, each, shared, attends):
        super().__init__()
        widths = [width * times for times in (16, 16, 8, 4, 2)]
        self.each, self.shared = each, nn.Embedding(5, shared)
        self.linear = Spectral(nn.Linear(each, widths[0] * 16))
        blocks = [[Up(a, b, shared + each)] for a, b in pairwise(widths)]
        blocks[attends].append(Attention(widths[attends + 1]))
        self.blocks = nn.ModuleList([nn.ModuleList(block) for block in blocks])
        self.output_layer = nn.Sequential(
            PlainNorm(widths[-1]), nn.ReLU(), Spectral(nn.Conv2d(widths[-1], 3, 3, padding=1))
        )

    def forward(self, z, y):
        first, *others = z.split(self.each, 1)
        h = self.linear(first).view(len(z), -1, 4, 4)
        for blocks, part in zip(self.blocks, others, strict=True):
            for block in blocks:
                h = block(h, torch.cat([self.shared(y), part], 1))
        return torch.tanh(self.output_layer(h))


class Down(nn.Module):
    def __init__(self, a, b, down, first):
        super().__init__()
        self.conv1, self.conv2 = (Spectral(nn.Conv2d(i, b, 3, padding=1)) for i in (a, b))
        self.conv_sc = Spectral(nn.Conv2d(a, b, 1)) if down or a != b else None
        self.pool, self.first = nn.AvgPool2d(2) if down else nn.Identity(), first

    def forward(self, x):
        h = self.conv2(self.conv1(x if self.first else x.relu()).relu())
        return self.pool(h) + (x if self.conv_sc is None else self.conv_sc(self.pool(x)))


class BigD(nn.Module):
    def __init__(self, width, attends):
        super().__init__()
        widths = [3, *(width * times for times in (1, 2, 4, 8, 16))]
        pairs = list(pairwise(widths))
        blocks = [[Down(a, b, i < 4, i == 0)] for i, (a, b) in enumerate(pairs)]
        blocks[attends].append(Attention(widths[attends + 1]))
        self.blocks = nn.ModuleList([nn.ModuleList(block) for block in blocks])
        self.linear = Spectral(nn.Linear(widths[-1], 1))
        self.embed = Spectral(nn.Embedding(5, widths[-1]))

    def forward(self, x, y):
        for blocks in self.blocks:
            for block in blocks:
                x = block(x)
        h = x.relu().sum((2, 3))
        return self.linear(h)[:, 0] + (self.embed(y) * h).sum(1)


OPTIONS = biggan.Options(width=8, latent=20, shared=6, flavour="brock", attention={"g": 32, "d": 16})


def test_biggan_g(tmp_path):
    theirs = randomised(BigG(8, 4, 6, attends=2))
    ours = biggan.Generator(OPTIONS, (3, 64, 64), 5)
    settings = filled(ours, theirs, folder=tmp_path, wrap=lambda state: {f"module.{k}": v for k, v in state.items()})
    assert settings == {"name": "biggan", "flavour": "brock", "width": 8, "latent": 20, "shared": 6}
    z, y = torch.randn(2, 20), torch.tensor([4, 1])
    assert_same(ours(z, y), theirs(z, y))


def test_biggan_d(tmp_path):
    theirs = randomised(BigD(8, attends=1))
    ours = biggan.Discriminator(OPTIONS, (3, 64, 64), 5)
    settings = {"name": "biggan", "flavour": "brock", "width": 8, "attention": {"d": 16}}
    assert filled(ours, theirs, folder=tmp_path) == settings
    x, y = torch.randn(2, 3, 64, 64), torch.tensor([4, 1])
    assert_same(ours(x, y).logits_B, theirs(x, y))
