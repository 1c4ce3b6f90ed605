"""The folded convolutions, and the blocks that use them, against the plain order of operations in float64."""

import pytest
import torch
import torch.nn.functional as F

from paragan.layers.blocks import DownBlock, UpBlock, identity_wrap
from paragan.layers.resample import DownConv2d, UpConv2d, blur, upsample
from paragan.layers.spectral_norm import spectral_norm


def images(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def conv3(module, x):
    return F.conv2d(x, module.weight, module.bias, padding=1)


CASES = [
    (UpConv2d, (2, 3, 5, 4), lambda m, x: conv3(m, F.interpolate(x, scale_factor=2))),
    (DownConv2d, (2, 3, 6, 8), lambda m, x: F.avg_pool2d(conv3(m, x), 2)),
]


@pytest.mark.parametrize(("kind", "shape", "plainly"), CASES)
@pytest.mark.parametrize("wrap", [identity_wrap, spectral_norm])
def test_equals_a_resize_and_a_convolution(kind, shape, plainly, wrap):
    torch.manual_seed(0)
    module, x = wrap(kind(3, 4).double()).eval(), images(*shape).requires_grad_()
    outs = module(x), plainly(module, x)
    torch.testing.assert_close(*outs, rtol=1e-12, atol=1e-13)
    grads = [torch.autograd.grad(out.sin().sum(), [x, *module.parameters()]) for out in outs]
    torch.testing.assert_close(*grads, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("kind", "shape", "plainly"), CASES)
def test_taps_are_summed_in_float32_under_autocast(kind, shape, plainly):
    """One sum is 2^-9, of taps that bf16 would have rounded to 1 and -1."""
    module, x = kind(1, 1), torch.zeros(1, 1, 4, 4)
    x[0, 0, 0, 0] = 1
    with torch.no_grad():
        module.bias.zero_()
        module.weight.zero_()
        module.weight[0, 0, 1] = torch.tensor([1 + 2**-9, -1.0, 0.0])
    with torch.autocast("cpu", torch.bfloat16):
        y = module(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), plainly(module, x), rtol=5e-3, atol=1e-6)


def test_up_block_is_the_papers():
    torch.manual_seed(0)
    block, x = UpBlock(4, 3).double(), images(2, 4, 3, 3)
    h = conv3(block.conv1, F.interpolate(block.norm1(x).relu(), scale_factor=2))
    h = block.conv2(block.norm2(h).relu())
    by_hand = h + block.shortcut(F.interpolate(x, scale_factor=2))
    before = x.clone()
    torch.testing.assert_close(block(x), by_hand, rtol=1e-11, atol=1e-12)
    assert torch.equal(x, before)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("down", [False, True])
def test_down_block_is_the_papers(first, down):
    torch.manual_seed(0)
    block, x = DownBlock(4, 4, down, first, identity_wrap).double(), images(2, 4, 6, 6)
    halve = (lambda t: F.avg_pool2d(t, 2)) if down else (lambda t: t)
    h = conv3(block.conv2, conv3(block.conv1, x if first else x.relu()).relu())
    by_hand = halve(h) + (halve(block.shortcut(x)) if down else x)
    before = x.clone()
    torch.testing.assert_close(block(x), by_hand, rtol=1e-11, atol=1e-12)
    assert torch.equal(x, before)


@pytest.mark.parametrize("sides", [(6, 8), (2, 4), (5, 3)])
def test_doubling_is_four_times_the_filter_of_pixels_between_zeros(sides):
    """As the authors of StyleGAN2 and R3GAN double: zeros lie beyond the border, too."""
    x = images(2, 3, *sides)
    spread = x.new_zeros(2, 3, 2 * sides[0], 2 * sides[1])
    spread[..., ::2, ::2] = x
    taps = torch.tensor([1.0, 3.0, 3.0, 1.0], dtype=torch.float64) / 8
    kernel = torch.outer(taps, taps).expand(3, 1, 4, 4)
    plainly = 4 * F.conv2d(F.pad(spread, (2, 1, 2, 1)), kernel, groups=3)
    torch.testing.assert_close(upsample(x), plainly, rtol=1e-12, atol=1e-13)


def test_halving_is_a_quarter_of_the_transpose_of_doubling():
    x, small = images(2, 3, 6, 8), images(2, 3, 3, 4).requires_grad_()
    (back,) = torch.autograd.grad((upsample(small) * x).sum(), small)
    torch.testing.assert_close(back, 4 * blur(x, 1, 1, stride=2), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", [upsample, lambda x: blur(x, 1, 1, stride=2)])
def test_resampling_is_differentiable_twice(kind):
    assert torch.autograd.gradgradcheck(kind, (images(1, 2, 4, 4).requires_grad_(),))
