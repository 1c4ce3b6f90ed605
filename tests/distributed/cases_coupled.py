"""Losses that compare all images of a batch, where its rows lie on several ranks."""

from __future__ import annotations

from functools import partial

import torch

from paragan.core import rng
from paragan.core.dist import ALONE, World
from paragan.core.make import Make
from paragan.core.types import Batch, Rows, Side
from paragan.game.gan import GAN, Loss
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.across import Across, whole
from paragan.layers.init import initialise
from paragan.losses import hinge
from paragan.models import contragan
from paragan.parallel import none
from paragan.penalties import contrastive, data_to_data
from paragan.schemes import synchronous
from tests.distributed.cases_laws import UNEVEN, strategy
from tests.laws.small_gan import distance

BATCH, CLASSES, SHAPE, STEPS = 20, 3, (1, 8, 8), 3
OPTIONS = contragan.Options(latent=6, width=4, shared=5, embed=6)
KINDS = {"contrastive": contrastive, "data_to_data": data_to_data}


def make(side: Side) -> Make:
    kind = contragan.Generator if side is Side.G else contragan.Discriminator
    return Make(lambda: kind(OPTIONS, SHAPE, CLASSES).double(), partial(initialise, seed=0, stream=side.value))


def game(world: World, name: str, made) -> GAN:
    players = {}
    for side in Side:
        own = made()
        policy = Policy(torch.optim.Adam, 1e-3, {"betas": (0.0, 0.9), "eps": 1e-4}, max_norm=0.5)
        players[side] = Player(side, own.prepare(make(side), world), own, policy)
    module = KINDS[name]
    mine = {side: (module.Penalty(module.Options(weight=0.8, side=side.value)),) for side in Side}
    prior = Prior(5, 6, CLASSES, dtype=torch.float64)
    loss = Loss(hinge.d_loss, hinge.g_loss)
    return GAN(players[Side.G], players[Side.D], loss, prior, mine[Side.G], mine[Side.D])


def stream(first: int = 0, count: int = BATCH):
    for step in range(STEPS):
        rows = Rows(step, first, count, BATCH)
        x = rng.uniform(3, "x", rows, SHAPE).double() * 2 - 1
        yield Batch(rows, x, rng.integers(3, "y", rows, CLASSES))


def ranks_are_the_batch(world: World, name: str, kind: str, uneven: bool) -> float:
    """The largest difference of any weight from the plain run."""
    row = sum(UNEVEN[world.size][: world.rank]) if uneven else 0
    share = (row, UNEVEN[world.size][world.rank]) if uneven else world.share(BATCH)
    gan, plain = game(world, name, partial(strategy, kind)), game(ALONE, name, none.Strategy)
    for one, batches in ((gan, stream(*share)), (plain, stream())):
        for _ in range(STEPS):
            synchronous.step(one, batches)
    pairs = ((gan.g, plain.g), (gan.d, plain.d))
    start = dict(make(Side.D)().state_dict())
    assert distance(dict(plain.d.net.state_dict()), start) > 1e-4
    return max(distance(a.strategy.weights(a.net), dict(b.net.state_dict())) for a, b in pairs)


def whole_rows(world: World) -> list:
    """Values in the order of the batch, and the gradient of all ranks' sums at the rows here."""
    total, counts = 20, UNEVEN[world.size]
    rows = Rows(0, sum(counts[: world.rank]), counts[world.rank], total)
    x = torch.arange(total, dtype=torch.float64)[rows.window, None].requires_grad_()
    found = whole(x, rows, Across(world.group))
    ((world.rank + 1) * found.square().sum()).backward()
    labels = whole(torch.arange(total)[rows.window], rows, Across(world.group))
    return [found[:, 0].tolist(), x.grad[:, 0].tolist(), labels.tolist()]
