"""Pain points of two networks in one process: the naive code shows the symptom, ours does not."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from paragan.core.types import Side
from paragan.game.ema import Ema
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.parallel import none
from paragan.penalties import r1
from paragan.schemes import synchronous
from tests.laws.small_gan import batches, distance, game, network, player

G, D = Side.G, Side.D


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_spectral_norms_vectors_turn_in_the_turn_of_the_opponent():
    """The same threads: in G's turn D merely judges, and is another network afterwards."""
    torch.manual_seed(0)
    d = parametrizations.spectral_norm(nn.Linear(12, 12))
    before = copy.deepcopy(d.state_dict())
    d.requires_grad_(False)
    d(torch.randn(2, 12))
    assert distance(d.state_dict(), before) > 1e-7
    gan = game(*(player(side, none.Strategy()) for side in Side))
    before = copy.deepcopy(gan.d.net.state_dict())
    gan.g.update(gan.g_turn(next(batches())), against=gan.d)
    assert distance(dict(gan.d.net.state_dict()), before) == 0


class Painter(nn.Module):
    """A generator of 1x8x8 whose batch norm sees numbers far from zero."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.norm, self.last = nn.Linear(6, 16), AffineBatchNorm(16), nn.Linear(16, 64)
        nn.init.constant_(self.layer.bias, 50.0)

    def forward(self, z, y=None):
        return self.last(F.relu(self.norm(self.layer(z)))).tanh().unflatten(1, (1, 8, 8))


def test_an_average_without_batch_norms_statistics_paints_junk():
    """POSTECH-CVLab/PyTorch-StudioGAN #64, #66; boschresearch/OASIS #21; odegeasslbc/FastGAN-pytorch #4;
    google/compare_gan #31; lucidrains/ema-pytorch #29: only parameters were averaged.
    """
    net, shadow, naive = (Painter().double() for _ in range(3))
    g = Player(G, net, none.Strategy(), Policy(lr=1e-4), ema=Ema(shadow, EmaOptions(half_life_kimg=1e-3)))
    gan = game(g, player(D, none.Strategy()))
    stream = batches()
    for _ in range(60):
        synchronous.step(gan, stream)
        with torch.no_grad():
            for mine, theirs in zip(naive.parameters(), net.parameters(), strict=True):
                mine.lerp_(theirs, 0.5)
    z = normal(8, 6)
    with torch.no_grad():
        painted = net(z)  # by this batch's statistics
        junk, average = (float((of.eval()(z) - painted).abs().mean()) for of in (naive, shadow))
    assert distance(dict(shadow.named_buffers()), dict(net.named_buffers())) == 0
    assert junk > 0.8
    assert average < 0.4


def test_a_penalty_at_every_update_doubles_the_time_and_a_rarer_one_lost_its_force(monkeypatch):
    """pytorch/pytorch #7714: the second derivative is the dearest part of an
    update. Ours is due seldom, with a force that grows by as much; naive laziness only makes it weaker.
    """
    inner, grad = [0], torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: inner.__setitem__(0, inner[0] + 1) or grad(*a, **k))

    def force(penalty: r1.Penalty) -> tuple[float, int]:
        """Summed over 8 updates that leave the weights alone, and inner backwards taken."""
        inner[0] = 0
        seats = (Player(side, network(side), none.Strategy(), Policy(torch.optim.SGD, 0.0)) for side in Side)
        gan, real = game(*seats), next(batches())
        gan.d_penalties = (penalty,)
        told = [synchronous.step(gan, iter([real])).read() for _ in range(8)]
        return sum(words.get("d/loss/r1", 0.0) for words in told), inner[0]

    always, calls = force(r1.Penalty(r1.Options(weight=2.0)))
    naive, _ = force(r1.Penalty(r1.Options(weight=2.0 / 4, interval=4)))  # its weight does not grow with its period
    lazy, fewer = force(r1.Penalty(r1.Options(weight=2.0, interval=4)))
    assert naive == pytest.approx(always / 4, rel=0.2)  # spectral norm's vectors still turn a little
    assert lazy == pytest.approx(always, rel=0.2)
    assert (calls, fewer) == (8, 2)
