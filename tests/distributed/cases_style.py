"""StyleGAN2 on several ranks: images compared and lengths averaged over all of them."""

from __future__ import annotations

from functools import partial

import torch

from paragan.core.dist import ALONE, World
from paragan.core.loss import Loss
from paragan.core.network_factory import NetworkFactory
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.init import initialise
from paragan.losses import nonsaturating
from paragan.models import stylegan2
from paragan.parallel import none
from paragan.penalties import path_length, r1
from paragan.schemes import shared_fakes, synchronous
from tests.distributed.cases_coupled import BATCH, CLASSES, SHAPE, STEPS, UNEVEN, stream
from tests.distributed.cases_laws import strategy
from tests.laws.small_gan import distance

OPTIONS = stylegan2.Options(latent=6, style=4, mapping=2, width=4, base=32, mixing=0.0, noise=False, group=3)


def make(side: Side) -> NetworkFactory:
    kind = stylegan2.Generator if side is Side.G else stylegan2.Discriminator
    return NetworkFactory(
        lambda: kind(OPTIONS, SHAPE, CLASSES).double(), partial(initialise, seed=0, stream=side.value)
    )


def game(world: World, made) -> GAN:
    players = {}
    for side in Side:
        own = made()
        policy = Policy(torch.optim.Adam, 2e-3, {"betas": (0.0, 0.9), "eps": 1e-4})
        players[side] = Player(side, own.prepare(make(side), world), own, policy)
    lengths = path_length.Penalty(path_length.Options(interval=2, decay=0.3))
    lengths.state["mean"] = lengths.state["mean"].double()
    slope = r1.Penalty(r1.Options(weight=0.5, interval=2))
    loss = Loss(nonsaturating.d_loss, nonsaturating.g_loss)
    found = GAN(players[Side.G], players[Side.D], loss, Prior(5, 6, CLASSES, dtype=torch.float64), (lengths,), (slope,))
    return found


def ranks_are_the_batch(world: World, kind: str, uneven: bool, shared: bool) -> tuple[float, float]:
    """The largest difference of any weight from the plain run, and of the running mean of path lengths."""
    row = sum(UNEVEN[world.size][: world.rank]) if uneven else 0
    share = (row, UNEVEN[world.size][world.rank]) if uneven else world.share(BATCH)
    gan, plain = game(world, partial(strategy, kind)), game(ALONE, none.Strategy)
    scheme = shared_fakes.Scheme() if shared else synchronous
    for one, batches in ((gan, stream(*share)), (plain, stream())):
        for _ in range(STEPS):
            scheme.step(one, batches)
    pairs = ((gan.g, plain.g), (gan.d, plain.d))
    assert distance(dict(plain.g.net.state_dict()), dict(make(Side.G)().state_dict())) > 1e-4
    means = [game.g.state["path_length/mean"] for game in (gan, plain)]
    assert means[1] > 0
    far = max(distance(a.strategy.weights(a.net), dict(b.net.state_dict())) for a, b in pairs)
    return far, float((means[0] - means[1]).abs())
