"""`schemes/extragradient` against its plainest form, in float64."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.errors import ConfigError
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.losses import wasserstein
from paragan.parallel import MemoryOptions, none
from paragan.schemes import extragradient, synchronous

BATCH, STEPS, LR = 4, 5, 0.05


class Generator(nn.Module):
    latent = 2

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.3, -0.7], dtype=torch.float64))

    def forward(self, z, y=None):
        return (self.w + 0.1 * z).view(-1, 2, 1, 1)


class Discriminator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.decay = nn.Parameter(torch.tensor([0.5, 0.2], dtype=torch.float64)), 0.05

    def forward(self, x, y=None):
        return x.flatten(1) @ self.w - self.decay * self.w.square().sum()


def real(step):
    rows = Rows(step=step, first=0, count=BATCH, total=BATCH)
    draw = torch.Generator().manual_seed(step)
    return Batch(rows, {"image": torch.randn(BATCH, 2, 1, 1, generator=draw, dtype=torch.float64) + 1})


def game(kind=torch.optim.SGD, strategy=None, dtype=torch.float64, lr=LR, **arguments):
    policy = Policy(kind=kind, lr=lr, arguments=arguments)
    nets = (Generator().to(dtype), Discriminator().to(dtype))
    g, d = (
        Player(side=side, net=net, strategy=strategy or none.Strategy(), policy=policy)
        for side, net in zip(Side, nets, strict=True)
    )
    return GAN(
        g=g,
        d=d,
        loss=Loss(wasserstein.d_loss, wasserstein.g_loss),
        prior=Prior(seed=3, latent=2, dtype=dtype),
    )


def naive(kind, **arguments):
    """Gidel et al. 2019, algorithm 4, both players in one list."""
    g, d, prior = Generator(), Discriminator(), Prior(seed=3, latent=2, dtype=torch.float64)
    optimizers = [kind(net.parameters(), lr=LR, **arguments) for net in (g, d)]

    def set_gradients(batch):
        (z_d, _), (z_g, _) = prior.draw("d", batch.rows), prior.draw("g", batch.rows)
        d.w.grad = torch.autograd.grad((d(g(z_d)) - d(batch.image)).mean(), d.w)[0]
        g.w.grad = torch.autograd.grad(-d(g(z_g)).mean(), g.w)[0]

    for step in range(STEPS):
        before = [net.w.detach().clone() for net in (g, d)]
        for ahead in (True, False):
            set_gradients(real(step))
            for net, at, optimizer in zip((g, d), before, optimizers, strict=True):
                if not ahead:
                    net.w.data.copy_(at)
                optimizer.step()
    return g.w.detach(), d.w.detach()


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [(torch.optim.SGD, {}), (torch.optim.Adam, {"betas": (0.5, 0.9), "eps": 1e-3})],
    ids=["sgd", "adam"],
)
def test_it_is_its_paper(kind, arguments):
    gan = game(kind, **arguments)
    for step in range(STEPS):
        extragradient.Scheme().step(gan, iter([real(step)]))
    expected = naive(kind, **arguments)
    assert (
        max(float((s.net.w - e).detach().abs().max()) for s, e in zip((gan.g, gan.d), expected, strict=True)) <= 1e-14
    )
    assert (int(gan.g.updates), gan.g.version, gan.clock.images) == (STEPS, STEPS, STEPS * BATCH)


class Counting(pg.Penalty):
    """A penalty that counts how often it was asked, and remembers it."""

    name = "counting"

    def __init__(self):
        self.state = {"asked": torch.zeros(())}

    def __call__(self, part):
        self.state["asked"] += 1
        return part.outputs.fake.logits_B * 0


def test_what_penalties_remember_is_of_updates():
    gan = replace(game(), d_penalties=(counting := Counting(),))
    for step in range(3):
        extragradient.Scheme().step(gan, iter([real(step)]))
    assert float(counting.state["asked"]) == int(gan.d.updates) == 3


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop], ids=["skips on the device", "is not called"])
@pytest.mark.parametrize(
    "memory", [MemoryOptions(), MemoryOptions(weight_dtype=torch.bfloat16)], ids=["plain", "float32 copies"]
)
def test_a_step_that_is_not_finite_is_skipped_from_where_it_began(memory, kind):
    """Gradients of the look ahead are fine, those there are not."""
    gan = game(kind, none.Strategy(memory=memory), torch.float32)
    start = gan.d.net.w.detach().clone()
    turn = gan.d_turn(Batch(real(0).rows, {"image": real(0).image.float()}))
    played = gan.d.compute_gradients(turn, against=gan.g)
    gan.d.look_ahead(played)
    assert not gan.d.net.w.equal(start)
    gan.d.net.w.grad = torch.full_like(start, float("nan"))
    gan.d.apply_gradients(replace(played, norm=torch.tensor(float("nan"))))
    assert gan.d.net.w.equal(start) and int(gan.d.updates) == 0


def test_an_opponent_elsewhere_is_refused():
    gan = game()
    gan.d = SimpleNamespace(updates_per_step=1)
    with pytest.raises(ConfigError, match="both players in one process, but one is a SimpleNamespace"):
        extragradient.Scheme().step(gan, iter([real(0)]))


@pytest.mark.parametrize(("scheme", "times"), [(synchronous, 1), (extragradient.Scheme(), 2)], ids=["plain", "extra"])
def test_spectral_norm_advances_once_for_each_gradient_of_an_update(scheme, times):
    """The rate is 0, so that all power iterations are of one matrix."""
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Flatten(), pg.spectral_norm(nn.Linear(2, 3)), nn.Linear(3, 1), nn.Flatten(0)).double()
    norm = critic[1].parametrizations.weight[0]
    policy = Policy(kind=torch.optim.SGD, lr=0.0, arguments={})
    g, d = [
        Player(side=side, net=net, strategy=none.Strategy(), policy=policy)
        for side, net in zip(Side, (Generator(), critic), strict=True)
    ]
    norm.u.copy_(torch.tensor([1.0, 0.0, 0.0]))  # not converged
    expected, matrix = norm.u.clone(), critic[1].parametrizations.weight.original.detach()
    for _ in range(times):
        expected = nn.functional.normalize(matrix @ (matrix.T @ expected), dim=0)
    prior = Prior(seed=3, latent=2, dtype=torch.float64)
    scheme.step(GAN(g=g, d=d, loss=Loss(wasserstein.d_loss, wasserstein.g_loss), prior=prior), iter([real(0)]))
    torch.testing.assert_close(norm.u, expected)
