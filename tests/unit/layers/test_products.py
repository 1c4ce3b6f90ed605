"""4x4 convolutions of stride two as one matrix product, against torch's own in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, stack_module_state

from paragan.layers import strided_conv
from paragan.layers.strided_conv import DownConv4x4, UpConv4x4


def images(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def last(x: torch.Tensor) -> torch.Tensor:
    """With channels beside each other; stacked images, too."""
    return x.movedim(-3, -1).contiguous().movedim(-1, -3)


FOUR = [(DownConv4x4, (2, 3, 4, 6), F.conv2d), (UpConv4x4, (2, 3, 2, 3), F.conv_transpose2d)]
FOUR += [(DownConv4x4, (1, 3, 2, 2), F.conv2d), (UpConv4x4, (1, 3, 1, 1), F.conv_transpose2d)]


@pytest.fixture
def as_product(monkeypatch):
    monkeypatch.setattr(strided_conv, "_is_faster_as_product", lambda x, weight: True)


@pytest.mark.parametrize(("kind", "shape", "plainly"), FOUR)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_product_is_the_convolution_of_four(as_product, kind, shape, plainly, layout):
    torch.manual_seed(0)
    module, x = kind(3, 5).double().to(memory_format=layout), images(*shape).contiguous(memory_format=layout)
    outs = module(x.requires_grad_()), plainly(x, module.weight, stride=2, padding=1)
    assert outs[0].is_contiguous(memory_format=layout)
    torch.testing.assert_close(*outs, rtol=1e-12, atol=1e-13)
    grads = [torch.autograd.grad(out.sin().sum(), [x, module.weight]) for out in outs]
    torch.testing.assert_close(*grads, rtol=1e-11, atol=1e-12)
    module(x).sum().backward()
    assert module.weight.grad.stride() == module.weight.stride()  # else every update copies it


@pytest.mark.parametrize(("kind", "shape", "plainly"), FOUR)
def test_a_product_is_differentiable_twice(as_product, kind, shape, plainly):
    module, x = kind(3, 2).double(), images(1, *shape[1:]).requires_grad_()

    def f(x, weight):
        return functional_call(module, {"weight": weight}, (x,)).sin()

    assert torch.autograd.gradgradcheck(f, (x, module.weight))


def test_only_maps_smaller_than_their_weights_are_multiplied(monkeypatch):
    shapes = []
    monkeypatch.setattr(
        strided_conv, "_matrix", lambda weight: shapes.append(weight.shape) or (weight.flatten(1), False)
    )
    DownConv4x4(4, 4)(images(1, 4, 8, 8).float()), UpConv4x4(4, 4)(images(2, 4, 8, 8).float())
    assert not shapes
    DownConv4x4(4, 4)(images(1, 4, 6, 6).float()), UpConv4x4(4, 4)(images(2, 4, 4, 4).float())
    assert shapes == [(4, 4, 4, 4)] * 2


@pytest.mark.parametrize("kind", [DownConv4x4, UpConv4x4])
def test_stacked_ones_are_each_alone(as_product, kind):
    torch.manual_seed(0)
    modules = [kind(3, 4).double() for _ in range(2)]
    parameters, _ = stack_module_state(modules)
    x = last(images(2, 2, 3, 4, 2))

    def loss(parameters, x):
        return functional_call(modules[0], parameters, (x,)).sin().sum()

    grads = torch.vmap(torch.func.grad(loss))(parameters, x)
    for i, module in enumerate(modules):
        module(x[i]).sin().sum().backward()
        torch.testing.assert_close(grads["weight"][i], module.weight.grad, rtol=1e-11, atol=1e-12)
