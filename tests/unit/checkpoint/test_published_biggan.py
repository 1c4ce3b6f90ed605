"""BigGAN-PyTorch's files: our networks compute what plain modules with its names compute."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paragan.checkpoint.layouts import possible_weights
from paragan.core.layout import StoredTensors
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


# `G_arch` and `D_arch` there: blocks of each network, G's last and D's first width in multiples of `ch`
ARCHITECTURES = {32: (3, 4, 4, 4), 64: (4, 5, 2, 1), 128: (5, 6, 1, 1), 256: (6, 7, 1, 1)}


def published(blocks: int, attends: int | None, **others) -> dict[str, object]:
    """Return the settings that a file tells which has such blocks of 8 channels, attention after number `attends`."""
    weights = {f"blocks.{number}.0.conv1.weight": torch.randn(8, 3) for number in range(blocks)} | others
    weights["blocks.0.0.conv1.u0"] = torch.randn(1, 8)
    if attends is not None:
        weights[f"blocks.{attends}.1.gamma"] = torch.zeros(())
    (network,) = possible_weights(StoredTensors.of(weights))
    return dict(network.settings) | {"shape": network.shape}


@pytest.mark.parametrize("image", ARCHITECTURES)
def test_widths_and_default_attention_are_those_of_the_authors_tables(image):
    g_blocks, d_blocks, g_last, d_first = ARCHITECTURES[image]
    map_side = None if image == 32 else min(image // 2, 64)
    g_attends = None if map_side is None else map_side.bit_length() - 4  # maps of 8 px after the first block
    d_attends = None if map_side is None else (image // map_side).bit_length() - 2
    g = {
        "linear.weight": torch.randn(16, 4),
        "linear.u0": torch.randn(1, 16),
        "output_layer.0.gain": torch.ones(8),
        "output_layer.2.bias": torch.zeros(3),
        "shared.weight": torch.zeros(5, 6),
    }
    sizes = {"name": "biggan", "flavour": "brock", "width": 8 // g_last}
    latent = 4 * (g_blocks + 1)
    expected = sizes | {"latent": latent, "shared": 6, "shape": (3, image, image)}
    assert published(g_blocks, g_attends, **g) == expected
    assert published(d_blocks, d_attends) == sizes | {"width": 8 // d_first, "shape": ()}
    other = published(d_blocks, 0 if d_attends else 1)
    assert other["attention"] == {"d": image // (2 if d_attends else 4)}


@pytest.mark.parametrize("project", ["BigGAN-PyTorch", "PyTorch-StudioGAN"])
@pytest.mark.parametrize("attention", [{}, {"gamma": torch.zeros(()), "sigma": torch.zeros(1)}])
def test_file_of_one_block_is_of_no_known_project(project, attention):
    last = {"weight": torch.randn(8, 3), "u0": torch.randn(1, 8)}  # 4 px, which no model here has
    if project == "PyTorch-StudioGAN":
        last = {"bias": torch.zeros(8)}
    conv = "conv1" if "u0" in last else "conv2d1"
    weights = {f"blocks.0.0.{conv}.{name}": value for name, value in last.items()}
    weights |= {f"blocks.0.0.{name}": value for name, value in attention.items()}
    assert not list(possible_weights(StoredTensors.of(weights)))
