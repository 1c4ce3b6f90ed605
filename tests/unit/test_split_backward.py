"""A backward in two parts against one, in float64."""

from __future__ import annotations

import contextlib
import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paragan.layers.split_backward import SplitBackward


class Net(nn.Module):
    """Convolutions of three kinds, a weight under a parametrisation, and one made from activations."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.spectral_norm(nn.Conv2d(2, 4, 3, padding=1, groups=2))
        self.up = nn.ConvTranspose2d(4, 4, 4, stride=2, padding=1, bias=False)
        self.style = nn.Linear(4, 4 * 4 * 9)
        self.last = nn.Linear(4, 1, bias=False)

    def forward(self, x_BCHW):
        h = F.silu(self.up(F.silu(self.first(x_BCHW))))
        weight = self.style(h.mean((0, 2, 3))).view(4, 4, 3, 3)
        h = F.silu(F.conv2d(h, weight, stride=2, dilation=2, padding="valid"))
        return self.last(h.mean((2, 3))).squeeze(1)


def net_and_image():
    torch.manual_seed(0)
    return Net().double().eval(), torch.randn(5, 2, 6, 6, dtype=torch.float64)


def loss_of(out_B, x, r1):
    loss = F.softplus(out_B).sum()
    if r1:
        (grad,) = torch.autograd.grad(out_B.sum(), x, create_graph=True)
        loss = loss + 3 * grad.square().sum()
    return loss


def gradients(net):
    return [weight.grad for weight in net.parameters()]


@pytest.mark.parametrize("r1", [False, True])
def test_split_backward_of_two_micro_batches_equals_one_part(r1):
    plain, x = net_and_image()
    split_net = copy.deepcopy(plain)
    split = SplitBackward()
    for number in range(2):
        image = (x + number).requires_grad_(r1)
        loss_of(plain(image), image, r1).backward()
        with split.of([image]):
            out_B = split_net(image)
        loss_of(out_B, image, r1).backward()
        if number == 0:
            assert gradients(split_net) == [None] * 6  # nothing of weights before `finish`
        split.finish()
    for ours, theirs in zip(gradients(split_net), gradients(plain), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_split_backward_has_the_gradient_of_the_input_before_it_finishes():
    plain, x = net_and_image()
    image = x.clone().requires_grad_()
    plain(image).sum().backward()
    split = SplitBackward()
    ours = x.clone().requires_grad_()
    with split.of([ours]):
        out_B = plain(ours)
    out_B.sum().backward()
    assert torch.allclose(ours.grad, image.grad, rtol=0, atol=1e-13)


def test_split_backward_releases_weights_without_the_garbage_collector():
    """A weight under a parametrisation is a new tensor in every call."""
    split = SplitBackward()
    weight = torch.randn(3, 4, requires_grad=True) * 2
    released = weakref.ref(weight)
    gc.disable()
    try:
        with split.of([]):
            out = F.linear(torch.randn(5, 4), weight)
        out.sum().backward()
        split.finish()
        del weight, out
        assert released() is None
    finally:
        gc.enable()


def test_split_backward_of_a_bias_from_activations_equals_one_part():
    h = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)

    def out(mode):
        with mode:
            first = F.linear(h, weight)
            return F.linear(first, weight, first.mean(0)).square().sum()

    expected = torch.autograd.grad(out(contextlib.nullcontext()), [h, weight])
    split = SplitBackward()
    out(split.of([])).backward()
    split.finish()
    assert torch.allclose(h.grad, expected[0], rtol=0, atol=1e-12)
    assert torch.allclose(weight.grad, expected[1], rtol=0, atol=1e-12)


def test_split_backward_of_frozen_weights_leaves_nothing():
    net, x = net_and_image()
    image = x.requires_grad_()
    split = SplitBackward()
    net.requires_grad_(False)
    with split.of([image]):
        out_B = net(image)
    out_B.sum().backward()
    split.finish()
    assert gradients(net) == [None] * 6 and image.grad is not None


def test_split_backward_under_autocast_equals_one_part():
    plain, x = net_and_image()
    plain.float()
    split_net = copy.deepcopy(plain)
    split = SplitBackward()
    with torch.autocast("cpu", torch.bfloat16):
        plain(x.float()).sum().backward()
        with split.of([]):
            out_B = split_net(x.float())
        out_B.sum().backward()
        split.finish()
    for ours, theirs in zip(gradients(split_net), gradients(plain), strict=True):
        assert torch.allclose(ours, theirs, rtol=2e-2, atol=1e-3)
