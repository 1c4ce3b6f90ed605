"""Files of pytorch-CycleGAN-and-pix2pix: our networks compute what plain modules with its names compute."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paragan.models import cyclegan, pix2pix
from tests.unit.checkpoint.published_files import assert_same, doubles, filled, named, randomised

pytestmark = pytest.mark.usefixtures("doubles")
__all__ = ["doubles"]


class Skip(nn.Module):
    """A level of the U-Net, around the one inside."""

    def __init__(self, outer, inner, inside):
        super().__init__()
        down = [nn.LeakyReLU(0.2), nn.Conv2d(outer, inner, 4, 2, 1, bias=False)]
        up = [nn.ReLU(), nn.ConvTranspose2d(inner * (1 if inside is None else 2), outer, 4, 2, 1, bias=False)]
        middle = [] if inside is None else [nn.BatchNorm2d(inner), inside]
        self.model = nn.Sequential(*down, *middle, *up, nn.BatchNorm2d(outer))

    def forward(self, x):
        return torch.cat([F.leaky_relu(x, 0.2), self.model(x)], 1)


class Outermost(nn.Module):
    def __init__(self, width, inside):
        super().__init__()
        up = nn.ConvTranspose2d(2 * width, 3, 4, 2, 1)
        self.model = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1, bias=False), inside, nn.ReLU(), up, nn.Tanh())

    def forward(self, x):
        return self.model(x)


def unet(width, widths):
    inside = None
    for outer, inner in reversed(list(pairwise(widths))):
        inside = Skip(outer, inner, inside)
    return named(model=Outermost(width, inside))


@pytest.mark.parametrize("levels", [5, 6])
def test_pix2pix_g(tmp_path, levels):
    widths = [4 * min(2**level, 8) for level in range(levels)]
    theirs = randomised(unet(4, widths))
    ours = pix2pix.Generator(pix2pix.Options(width=4), (3, 1 << levels, 1 << levels))
    assert filled(ours, theirs, folder=tmp_path) == {"name": "pix2pix", "width": 4, "norm": "batch"}
    x = torch.randn(2, 3, 1 << levels, 1 << levels)
    assert_same(ours(None, condition=x), theirs["model"](x))


def judge_of_patches(channels, width, halvings, norm):
    layers = [nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    for level in range(halvings):
        before, after = (width * min(2**n, 8) for n in (level, level + 1))
        conv = nn.Conv2d(before, after, 4, 2 if level + 1 < halvings else 1, 1, bias=norm is nn.InstanceNorm2d)
        layers += [conv, norm(after), nn.LeakyReLU(0.2)]
    return named(model=nn.Sequential(*layers, nn.Conv2d(after, 1, 4, 1, 1)))


def test_pix2pix_d(tmp_path):
    theirs = randomised(judge_of_patches(6, 4, 3, nn.BatchNorm2d))
    ours = pix2pix.Discriminator(pix2pix.Options(width=4), (3, 64, 64))
    assert filled(ours, theirs, folder=tmp_path) == {"name": "pix2pix", "width": 4, "norm": "batch"}
    condition, x = torch.randn(2, 2, 3, 64, 64)
    assert_same(ours(x, condition=condition).logits_B, theirs["model"](torch.cat([condition, x], 1))[:, 0])


class Residual(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()

        def half():
            return [nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width)]

        self.conv_block = nn.Sequential(*half(), nn.ReLU(), *[nn.Dropout(0.5)] * dropout, *half())

    def forward(self, x):
        return x + self.conv_block(x)


def translator(width, blocks, dropout):
    layers = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU()]
    for a in (width, 2 * width):
        layers += [nn.Conv2d(a, 2 * a, 3, 2, 1), nn.InstanceNorm2d(2 * a), nn.ReLU()]
    layers += [Residual(4 * width, dropout) for _ in range(blocks)]
    for a in (4 * width, 2 * width):
        layers += [nn.ConvTranspose2d(a, a // 2, 3, 2, 1, output_padding=1), nn.InstanceNorm2d(a // 2), nn.ReLU()]
    return named(model=nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh()))


@pytest.mark.parametrize("dropout", [False, True])
def test_cyclegan_g_of_two_files(tmp_path, dropout):
    a_to_b, b_to_a = (randomised(translator(4, 2, dropout)) for _ in range(2))
    ours = cyclegan.Generator(cyclegan.Options(width=4, blocks=2), (3, 16, 32))
    assert filled(ours, a_to_b, b_to_a, folder=tmp_path) == {"name": "cyclegan", "width": 4, "blocks": 2}
    a, b = torch.randn(2, 2, 3, 16, 16)
    assert_same(ours.directions["a_to_b"](a), a_to_b["model"](a))
    assert_same(ours(torch.cat([a, b], 3)).images, torch.cat([b_to_a["model"](b), a_to_b["model"](a)], 3))


@pytest.mark.parametrize("halvings", [2, 3])
def test_cyclegan_d_of_two_files(tmp_path, halvings):
    of_b, of_a = (randomised(judge_of_patches(3, 4, halvings, nn.InstanceNorm2d)) for _ in range(2))
    ours = cyclegan.Discriminator(cyclegan.Options(width=4, d_halvings=halvings), (3, 32, 64))
    settings = filled(ours, of_b, of_a, folder=tmp_path)
    assert settings == {"name": "cyclegan", "width": 4, "d_halvings": halvings}
    a, b = torch.randn(2, 2, 3, 32, 32)
    outputs = ours(torch.cat([a, b], 3))
    assert_same(outputs["a"], of_a["model"](a)[:, 0])
    assert_same(outputs["b"], of_b["model"](b)[:, 0])


def test_statistics_of_instance_norm_in_old_files_are_left_out(tmp_path):
    theirs = translator(4, 2, dropout=False)
    ours = cyclegan.Generator(cyclegan.Options(width=4, blocks=2), (3, 16, 32))
    for module in theirs.modules():
        if isinstance(module, nn.InstanceNorm2d):
            module.register_buffer("running_mean", torch.zeros(module.num_features))
            module.register_buffer("num_batches_tracked", torch.tensor(3))
    filled(ours, theirs, theirs, folder=tmp_path)
