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
from paragan.layers.spectral_norm import spectral_norm
from paragan.layers.update_once import begin_update
from paragan.losses import hinge
from paragan.parallel import none
from paragan.penalties import r1
from paragan.schemes import synchronous
from tests.distributed.naive_code import InPlaceSpectralNorm
from tests.laws.small_gan import batches, distance, game, network, player

G, D = Side.G, Side.D


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradients(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


def test_gradients_left_over_from_the_generators_turn_enter_the_discriminators():
    """Lightning-AI/pytorch-lightning #591, #557, #592, #603, #666; deepspeedai/DeepSpeed #399: each turn clears the
    gradients of its own network only, and what G's turn left in D is stepped with D's.
    """
    torch.manual_seed(0)
    g, d = nn.Linear(3, 4).double(), nn.Linear(4, 1).double()

    def d_turn() -> dict[str, torch.Tensor]:
        hinge.d_loss(d(normal(8, 4)), d(g(normal(8, 3, seed=1)).detach())).mean().backward()
        return gradients(d)

    expected = d_turn()
    d.zero_grad()
    (-d(g(normal(8, 3))).mean()).backward()
    torch.optim.SGD(g.parameters(), 0.0).step()
    g.zero_grad()
    assert distance(d_turn(), expected) > 1e-2

    after_g, alone = (game(*(player(side, none.Strategy()) for side in Side)) for _ in range(2))
    g_before = copy.deepcopy(after_g.g.net.state_dict())
    real = next(batches())
    after_g.g.update(after_g.g_turn(real), against=after_g.d)
    assert gradients(after_g.d.net) == {}
    after_g.g.net.load_state_dict(g_before)
    for gan in (after_g, alone):
        gan.d.update(gan.d_turn(real), against=gan.g)
        assert gradients(gan.g.net) == gradients(gan.d.net) == {}
    assert distance(dict(after_g.d.net.state_dict()), dict(alone.d.net.state_dict())) == 0


def test_spectral_norm_iterates_at_every_part_of_an_accumulated_batch():
    """pytorch/pytorch #8160, #11476, #12671, #13350: each forward in training turns u and v, so a batch in four parts
    is another step than the same batch whole. Ours turns them once per update.
    """

    def step(normalise, parts: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 12), normalise(nn.Linear(12, 12)), nn.Tanh(), nn.Linear(12, 1)).double()
        begin_update(net)
        for part in normal(8, 6).chunk(parts):
            (net(part).square().sum() / 8).backward()
        return gradients(net)

    naive, ours = (distance(step(kind, 4), step(kind, 1)) for kind in (nn.utils.spectral_norm, spectral_norm))
    assert naive > 1e-5
    assert ours <= 1e-12


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


def test_two_forwards_before_one_backward_meet_overwritten_vectors():
    """pytorch/pytorch #8160, #11476, #13350, #57784, #62293, #55368: on real, on fake, with a second derivative."""

    def loss(d: nn.Module) -> torch.Tensor:
        x = normal(4, 5).requires_grad_()
        real, fake = d(x).tanh(), d(normal(4, 5, seed=1)).tanh()
        (slope,) = torch.autograd.grad(real.sum(), x, create_graph=True)
        return hinge.d_loss(real, fake).mean() + slope.square().sum()

    torch.manual_seed(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss(InPlaceSpectralNorm(5, 3)).backward()

    ours = spectral_norm(nn.Linear(5, 3, bias=False).double())
    begin_update(ours)
    first = loss(ours)
    before = {name: value.clone() for name, value in ours.named_buffers()}
    begin_update(ours)
    loss(ours)  # another update's forward, before this one's backward
    assert distance(dict(ours.named_buffers()), before) > 1e-9
    first.backward()
    found = gradients(ours)
    ours.zero_grad()
    ours.load_state_dict(before, strict=False)
    loss(ours).backward()
    assert distance(found, gradients(ours)) <= 1e-12


def test_spectral_norms_vectors_are_lost_between_save_and_resume():
    """pytorch/pytorch #8160, #11476: they were no part of the state, and training went on from new ones."""
    torch.manual_seed(0)
    naive, ours = InPlaceSpectralNorm(8, 8), spectral_norm(nn.Linear(8, 8).double())
    x = normal(2, 8)
    begin_update(ours)
    naive(x), ours(x)
    torch.manual_seed(1)
    fresh_naive, fresh_ours = InPlaceSpectralNorm(8, 8), spectral_norm(nn.Linear(8, 8).double())
    for fresh, old in ((fresh_naive, naive), (fresh_ours, ours)):
        fresh.load_state_dict(old.state_dict())
    begin_update(ours), begin_update(fresh_ours)
    assert float((fresh_naive(x) - naive(x)).detach().abs().max()) > 1e-3
    assert torch.equal(fresh_ours(x), ours(x))


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
