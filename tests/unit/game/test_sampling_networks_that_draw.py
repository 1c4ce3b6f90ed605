"""Generators that draw in a forward: equal seeds give equal samples, and no generator outside changes."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paragan.game.network import CalledNetwork
from paragan.game.sampling import generate_images, generate_tensors, with_standing_statistics

DRAWS = {
    "torch": lambda h: h + torch.randn_like(h),
    "dropout that is never off": lambda h: F.dropout(h, 0.5, training=True),
    "numpy": lambda h: h + float(np.random.rand()),
    "random": lambda h: h + random.random(),
}


class Drawing(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.linear, self.norm, self.draw = nn.Linear(4, 9), nn.BatchNorm1d(9), draw

    def forward(self, z_BZ, y_B=None):
        return self.norm(self.draw(self.linear(z_BZ))).view(-1, 1, 3, 3)


def states():
    _, keys, place, *_ = np.random.get_state()
    return torch.get_rng_state().tolist(), keys.tolist(), place, random.getstate()


def samples(net, mode, **place):
    z = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    called = CalledNetwork(module=net)
    return (
        generate_images(called, z, None, 2, mode=mode, **place),
        generate_tensors(called, (z,), mode, **place).images,
        with_standing_statistics(net, [(z, None)] * 2).norm.running_mean,
    )


@pytest.mark.parametrize("mode", ["eval", "train-stats"])
@pytest.mark.parametrize("draw", DRAWS)
def test_equal_seeds_give_equal_samples_and_leave_generators_alone(draw, mode):
    net = Drawing(DRAWS[draw])
    before = states()
    first = samples(net, mode, seed=3)
    assert states() == before
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    assert all(map(torch.equal, first, samples(net, mode, seed=3)))
    assert not any(map(torch.equal, first[:2], samples(net, mode, seed=4)))
    assert not any(map(torch.equal, first[:2], samples(net, mode, seed=3, first=5)))
