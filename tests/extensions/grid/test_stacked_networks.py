"""A stack of linear networks computes what the network of each cell does."""

import copy

import pytest
import torch
from torch import nn

from paragan.extensions.grid.executors.stacked_networks import StackedNetwork
from paragan.layers.init import initialise
from paragan.models import mlp

CELLS, ROWS, SHAPE = 3, 4, (1, 5, 5)


class Mixing(nn.Module):
    """Its rows know of each other."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, x):
        return self.linear(x - x.mean(0))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(self.one(x).tanh())


class Deep(nn.Module):
    """A linear layer without bias, on more than rows."""

    def __init__(self):
        super().__init__()
        self.linear, self.last = nn.Linear(2, 4, bias=False), nn.Linear(12, 3)

    def forward(self, x):
        h = torch.nn.functional.leaky_relu(self.linear(x.unflatten(1, (3, 2))), 0.2, inplace=True)
        return self.last(h.flatten(1))


def nets(make):
    found = []
    for number in range(CELLS):
        net = make().double()
        initialise(net, number, "x")
        found.append(net)
    return found


def critic():
    return mlp.Discriminator(mlp.Options(d_widths=(8, 7)), SHAPE)


def flat(found):
    return found.logits_B if hasattr(found, "logits_B") else found


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (critic, SHAPE),
        (lambda: nn.Sequential(nn.Linear(6, 6), nn.LeakyReLU(0.2, inplace=True), nn.Linear(6, 1)), (6,)),
        (Deep, (6,)),
        (Mixing, (6,)),
        (Tied, (6,)),
        (lambda: nn.Sequential(nn.Linear(6, 6), nn.PReLU()), (6,)),
        (lambda: nn.Linear(6, 2), (6,)),
    ],
    ids=["critic", "sequential", "deep", "mixing", "tied", "other-weights", "one-layer"],
)
@pytest.mark.parametrize("times", [1, 2])
def test_stacked_network_equals_the_network_of_each_cell(make, shape, times):
    alone = nets(make)
    stack = StackedNetwork([copy.deepcopy(net) for net in alone], ROWS)
    x = torch.randn(times * CELLS * ROWS, *shape, dtype=torch.float64, requires_grad=True)
    z = x.detach().clone().requires_grad_()
    found = flat(stack(x))
    each = z.unflatten(0, (times, CELLS, ROWS)).transpose(0, 1).flatten(1, 2)
    expected = torch.stack([flat(net(rows)) for net, rows in zip(alone, each, strict=True)])
    expected = expected.unflatten(1, (times, ROWS)).transpose(0, 1).flatten(0, 2)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)

    force = torch.randn_like(expected)
    for value, given in ((found, x), (expected, z)):
        (slope,) = torch.autograd.grad((value * force).sum(), given, create_graph=True)
        (slope.square().sum() + (value * force).sum()).backward()  # twice through, as R1 goes
    assert torch.allclose(x.grad, z.grad, rtol=0, atol=1e-10)
    for number, net in enumerate(alone):
        for mine, theirs in zip(stack.gradients(number), net.parameters(), strict=True):
            assert torch.allclose(mine, theirs.grad, rtol=0, atol=1e-10)


def test_stacked_network_gradients_have_the_layout_of_the_weights():
    """A fused kernel walks both in memory order, and nothing is copied on the way."""
    stack = StackedNetwork(nets(critic), ROWS)
    flat(stack(torch.randn(CELLS * ROWS, *SHAPE, dtype=torch.float64))).sum().backward()
    for number in range(CELLS):
        assert all(gradient.is_contiguous() for gradient in stack.gradients(number))
