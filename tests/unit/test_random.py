"""Layers that draw: found, equal in any layout, and put back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paragan.layers.random import Dropout, preserved_state, uses_random_numbers


def dropped(x, p=0.25, seed=0):
    torch.manual_seed(seed)
    return Dropout(p)(x.clone(memory_format=torch.preserve_format))


def test_dropout_preserves_the_mean_and_drops_the_given_share():
    out = dropped(torch.ones(64, 8, 16, 16))
    assert out.unique().tolist() == [0, pytest.approx(1 / 0.75)]
    assert out.mean() == pytest.approx(1, abs=0.01)
    assert torch.equal(Dropout(0.25).eval()(torch.ones(5)), torch.ones(5))


def test_dropout_is_the_same_in_any_layout_and_format():
    x = torch.rand(2, 6, 5, 4) + 1
    plain = dropped(x)
    assert torch.equal(dropped(x.contiguous(memory_format=torch.channels_last)), plain)
    assert torch.equal(dropped(x.double()) == 0, plain == 0)
    assert torch.equal(dropped(x.bfloat16()) == 0, plain == 0)
    assert dropped(x.bfloat16()).dtype == torch.bfloat16
    assert not torch.equal(dropped(x, seed=1), plain)


def test_gradients_pass_where_it_lets_values_pass():
    x = torch.ones(4, 50, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(0)
    out = Dropout(0.5)(x * 1)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad, out.detach())


class Says(nn.Module):
    draws = True


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (Dropout(0.5), True),
        (nn.Dropout2d(), True),
        (Says(), True),
        (nn.Linear(2, 2), False),
        (nn.BatchNorm1d(2), False),
    ],
)
def test_who_draws(layer, expected):
    assert uses_random_numbers(nn.Sequential(nn.ReLU(), layer)) is expected


def test_untouched_puts_back_buffers_and_generators():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())
    before, state = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    with preserved_state(net):
        net(torch.randn(5, 3))
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
