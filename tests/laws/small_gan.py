"""The small GAN of the laws: conditional, spectral norm everywhere, hinge, R1 on the real images; float64, 1x8x8."""

import torch
import torch.nn.functional as F
from torch import nn

from paragan.core import rng
from paragan.core.layout import StoredTensors
from paragan.core.outputs import DiscriminatorOutput
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.game.state import restore, state_of
from paragan.layers.init import initialise
from paragan.layers.spectral_norm import spectral_norm
from paragan.losses import hinge
from paragan.parallel import none
from paragan.penalties import r1

LATENT, CLASSES, BATCH, STEPS = 6, 3, 8, 3


class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(CLASSES, 4)
        self.linear = spectral_norm(nn.Linear(LATENT + 4, 6 * 4 * 4))

    def forward(self, z, y):
        return F.silu(self.linear(torch.cat([z, self.embed(y)], 1))).unflatten(1, (6, 4, 4))


class Paint(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = spectral_norm(nn.Conv2d(6, 1, 3, padding=1))

    def forward(self, h, y):
        return torch.tanh(self.conv(F.interpolate(h, scale_factor=2)))


class See(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = spectral_norm(nn.Conv2d(1, 5, 3, padding=1))

    def forward(self, x, y):
        return F.avg_pool2d(F.silu(self.conv(x)), 2)


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = spectral_norm(nn.Conv2d(5, 7, 3, padding=1))
        self.linear = spectral_norm(nn.Linear(7, 1))
        self.embed = spectral_norm(nn.Embedding(CLASSES, 7))

    def forward(self, h, y):
        features = F.silu(self.conv(h)).sum((2, 3))
        return self.linear(features).squeeze(1) + (self.embed(y) * features).sum(1), features


class Net(nn.Module):
    weight_init = "orthogonal"

    def __init__(self, *blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, h, y=None):
        for block in self.blocks:
            h = block(h, y)
        return DiscriminatorOutput.of(h) if isinstance(h, tuple) else h


def network(side: Side, seed: int = 0) -> nn.Module:
    net = (Net(Stem(), Paint()) if side is Side.G else Net(See(), Judge())).double()
    initialise(net, seed, side.value)
    return net


PROBE = {
    Side.G: (torch.zeros(2, LATENT, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)),
    Side.D: (torch.zeros(2, 1, 8, 8, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)),
}


def player(side, strategy, *, mesh=None, make=None, parts=1, per_step=1, **policy) -> Player:
    make = make or (lambda: network(side))
    chosen = Policy(
        kind=torch.optim.Adam,
        lr=1e-2,
        arguments={"betas": (0.0, 0.9)},
        max_norm=0.5,
        micro_batches=parts,
        updates_per_step=per_step,
        **policy,
    )
    ema = Ema(strategy.prepare_average(make, mesh), EmaOptions(half_life_kimg=0.02)) if side is Side.G else None
    return Player(side=side, net=strategy.prepare(make, mesh), strategy=strategy, policy=chosen, ema=ema)


def game(g, d, prior=None) -> GAN:
    penalties = (r1.Penalty(r1.Options(weight=0.3, interval=2)),)
    prior = prior or Prior(seed=5, latent=LATENT, num_classes=CLASSES, dtype=torch.float64)
    return GAN(g=g, d=d, loss=Loss(hinge.d_loss, hinge.g_loss), prior=prior, d_penalties=penalties)


def small_game(k=1, **of_d) -> GAN:
    """A game of two players in this process. k: updates of D in a step. of_d: of D's policy."""
    return game(player(Side.G, none.Strategy()), player(Side.D, none.Strategy(), per_step=k, **of_d))


def batches(first=0, count=BATCH, seed=3, total=BATCH):
    """Rows `first … first + count` of an endless stream of global batches of `total`."""
    step = 0
    while True:
        rows = Rows(step=step, first=first, count=count, total=total)
        x = rng.uniform(seed, "x", rows, (1, 8, 8)).double() * 2 - 1
        yield Batch(rows, {"image": x, "label": rng.integers(seed, "y", rows, CLASSES)})
        step += 1


def play(gan, scheme, stream, steps=STEPS, total=lambda share: share) -> list[dict[str, float]]:
    return [scheme.step(gan, stream).read(total) for _ in range(steps)]


def distance(a, b) -> float:
    """Largest absolute difference over equally named tensors."""
    assert a.keys() == b.keys(), (sorted(a), sorted(b))
    return max(float((a[k] - b[k]).abs().max()) for k in a)


def difference(gan, nets) -> float:
    """Largest difference of a tensor of either player from that of a plain loop's networks, by side."""
    return max(distance(dict(seat.net.state_dict()), dict(nets[seat.side].state_dict())) for seat in (gan.g, gan.d))


def continued(gan, fresh):
    """`fresh` with the saved state of another game."""
    for player, other in ((fresh.g, gan.g), (fresh.d, gan.d)):
        pieces, counters = state_of(other)
        restore(player, StoredTensors.of({key: value.clone() for key, value in pieces.tensors.items()}), counters)
    return fresh
