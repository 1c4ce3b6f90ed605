"""The warp against the plainest loops and against waves that are known everywhere; its derivatives; float64."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from paragan.core import rng
from paragan.core.types import Rows
from paragan.layers.warp import cosine_basis, warp, warp_bilinear, warp_nearest

ROWS = Rows(step=0, first=0, count=5, total=5)
SHAPES = [(2, 5, 5), (1, 4, 7), (3, 8, 3)]
KEEP = torch.tensor([[1.0, 0, 0], [0, 1, 0]], dtype=torch.float64)


def images(channels, height, width):
    return rng.normal(0, "x", ROWS, (channels, height, width)).double()


def maps():
    """Any, the third far beyond the border."""
    found = KEEP + 0.6 * rng.normal(1, "maps", ROWS, (2, 3)).double()
    found[2, :, 2] *= 40
    return found


def rotation(angle, x=0.0, y=0.0):
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin, x], [sin, cos, y]], dtype=torch.float64)


def mirrored(place, length):
    while not 0 <= place < length:
        place = -1 - place if place < 0 else 2 * length - 1 - place
    return place


def one_by_one(x, inverse):
    """Every pixel by itself."""
    out = torch.zeros_like(x)
    height, width = x.shape[2:]
    for b, m in enumerate(inverse.tolist()):
        for row in range(height):
            for column in range(width):
                at = (column - (width - 1) / 2, row - (height - 1) / 2, 1.0)
                right, down = (sum(p * q for p, q in zip(line, at, strict=True)) for line in m)
                right, down = right + (width - 1) / 2, down + (height - 1) / 2
                left, top = math.floor(right), math.floor(down)
                for r, tall in ((top, top + 1 - down), (top + 1, down - top)):
                    for c, wide in ((left, left + 1 - right), (left + 1, right - left)):
                        out[b, :, row, column] += tall * wide * x[b, :, mirrored(r, height), mirrored(c, width)]
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_between_the_pixels(shape):
    x, inverse = images(*shape), maps()
    assert torch.allclose(warp_bilinear(x, inverse), one_by_one(x, inverse), atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_warped_reads_the_doubled_image_and_halves_what_it_reads(shape):
    x, inverse = images(*shape), maps()
    up, right = (doubling(side) for side in shape[1:])
    fine = one_by_one(up @ x @ right.T, inverse * torch.tensor([1.0, 1.0, 2.0]))
    assert torch.allclose(warp(x, inverse), up.T / 2 @ fine @ right / 2, atol=1e-6)


def doubling(length):
    """Twice the resolution along one axis: its kernel, from its frequencies, laid over the endless mirrored signal."""
    found, wave = torch.zeros(2 * length, length, dtype=torch.float64), torch.linspace(-2, 2, 4001).double() * math.pi
    low, high = (wave / 4).cos() ** 12, (wave / 4).sin() ** 12
    for m in range(2 * length):
        for n in range(-80, 80):
            apart = (m + 0.5) / 2 - (n + 0.5)
            kernel = torch.trapezoid((low / (low + high)).sqrt() * (wave * apart).cos(), wave) / (2 * math.pi)
            found[m, mirrored(n, length)] += kernel
    return found


@pytest.mark.parametrize("length", [1, 2, 5, 16])
def test_what_does_not_move_comes_out_as_it_went_in(length):
    x = images(2, length, 7)
    assert torch.allclose(warp(x, KEEP.expand(5, 2, 3)), x, atol=1e-12)


def test_a_wave_is_the_wave_at_other_places():
    """It goes on beyond the border as the mirror has it."""

    def wave(x, y):
        return torch.cos(2 * math.pi * (x + 16) / 32) + torch.cos(3 * math.pi * (y + 12) / 24)

    x = torch.arange(32, dtype=torch.float64) - 15.5
    y = (torch.arange(24, dtype=torch.float64) - 11.5)[:, None]
    for m in (rotation(0.0, 0.3, -7.1), rotation(0.4), rotation(2.5, 40.2, 3.3)):
        right, down = (line[0] * x + line[1] * y + line[2] for line in m)
        found = warp(wave(x, y)[None, None], m[None])[0, 0]
        assert (found - wave(right, down))[3:-3, 3:-3].abs().max() < 0.01
        assert (found - wave(right, down)).abs().max() < 0.1


def test_whole_pixels_are_copied():
    x = images(3, 6, 6)
    for turns in range(4):
        expected = torch.rot90(x, turns, (2, 3))
        inverse = rotation(turns * math.pi / 2).round()
        assert torch.equal(warp_nearest(x, inverse.expand(5, 2, 3)), expected)
    x = images(3, 5, 8)
    flip = torch.tensor([[-1.0, 0, 0], [0, 1, 0]], dtype=torch.float64)
    assert torch.equal(warp_nearest(x, flip.expand(5, 2, 3)), x.flip(3))
    shifted = warp_nearest(x, rotation(0.0, 2, -1).expand(5, 2, 3))  # from two to the right and one above
    assert torch.equal(shifted[:, :, 1:, :6], x[:, :, :4, 2:])
    assert torch.equal(shifted[:, :, 0, :6], x[:, :, 0, 2:])  # the mirror stands on the border
    assert torch.equal(shifted[:, :, 1:, 6:], x[:, :, :4, 6:].flip(3))


@pytest.mark.parametrize("read", [warp, warp_nearest])
def test_two_derivatives(read):
    """The gradient and the gradient of something curved in the gradient."""
    inverse = maps()[1:3]
    x = images(2, 3, 4)[1:3].requires_grad_()
    assert gradcheck(lambda x: read(x, inverse), (x,))
    assert gradgradcheck(lambda x: read(x, inverse).pow(3), (x,))


def test_the_cosines_are_orthonormal_and_known_by_their_frequency():
    basis = cosine_basis(7, torch.float64, torch.device("cpu"))
    assert torch.allclose(basis @ basis.T, torch.eye(7, dtype=torch.float64), atol=1e-12)
    wave = torch.cos(math.pi * 3 / 7 * (torch.arange(7, dtype=torch.float64) + 0.5))
    assert (basis @ wave).abs().argmax() == 3
