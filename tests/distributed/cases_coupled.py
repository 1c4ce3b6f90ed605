"""Losses and penalties of the zoo, most of which compare all images of a batch, where its rows lie on several ranks."""

from __future__ import annotations

from functools import cache, partial

import torch

from paragan.core import rng
from paragan.core.dist import ALONE, World
from paragan.core.loss import Loss
from paragan.core.network_factory import NetworkFactory
from paragan.core.types import Batch, Rows, Side
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.all_reduce import ReduceGroup, gather_batch
from paragan.layers.init import initialise
from paragan.losses import hinge, relativistic_average
from paragan.models import contragan, sngan
from paragan.parallel import none
from paragan.penalties import (
    approximate_r1,
    approximate_r2,
    auxiliary,
    consistency,
    contrastive,
    data_to_data,
    feature_matching,
    lecam,
)
from paragan.schemes import synchronous
from tests.distributed.cases_laws import UNEVEN, strategy
from tests.laws.small_gan import distance

BATCH, CLASSES, SHAPE, STEPS = 20, 3, (1, 8, 8), 3
COMPARED = contragan.Options(latent=6, width=4, shared=5, embed=6)
TOLD = sngan.Options(latent=6, width=4, head="auxiliary")
KINDS = {
    **{"auxiliary": auxiliary, "consistency": consistency, "contrastive": contrastive, "data_to_data": data_to_data},
    **{"feature_matching": feature_matching, "lecam": lecam},
    **{"approximate_r1": approximate_r1, "approximate_r2": approximate_r2},
}
NOISE = {"sigma": 0.1, "divide_by_sigma_squared": True}
MORE = {
    "approximate_r1": NOISE,
    "approximate_r2": {**NOISE, "fraction": 0.05},
    "consistency": {"fake_weight": 0.5},
    "lecam": {"decay": 0.6, "warmup": 1},
}


def make(side: Side, name: str) -> NetworkFactory:
    file, options = (sngan, TOLD) if name == "auxiliary" else (contragan, COMPARED)
    kind = file.Generator if side is Side.G else file.Discriminator
    return NetworkFactory(
        lambda: kind(options, SHAPE, CLASSES).double(), partial(initialise, seed=0, stream=side.value)
    )


def penalties(name: str, side: Side) -> tuple:
    """Those of this name that the side has; none of a loss."""
    if name not in KINDS:
        return ()
    module = KINDS[name]
    sides = {"side": side.value} if hasattr(module.Options(), "side") else {}
    made = module.Penalty(module.Options(weight=0.8, **sides, **MORE.get(name, {})))
    return (made,) if made.side is side else ()


def game(world: World, name: str, made) -> GAN:
    players = {}
    for side in Side:
        own = made()
        policy = Policy(torch.optim.Adam, 1e-3, {"betas": (0.0, 0.9), "eps": 1e-4}, max_norm=0.5)
        players[side] = Player(side, own.prepare(make(side, name), world), own, policy)
    prior = Prior(5, 6, CLASSES, dtype=torch.float64)
    mean = relativistic_average
    averages = name == "relativistic_average"
    loss = Loss(mean.d_loss, mean.g_loss, True, compares=True) if averages else Loss(hinge.d_loss, hinge.g_loss)
    gan = GAN(players[Side.G], players[Side.D], loss, prior, *(penalties(name, side) for side in Side))
    return gan


def stream(first: int = 0, count: int = BATCH):
    for step in range(STEPS):
        rows = Rows(step, first, count, BATCH)
        x = rng.uniform(3, "x", rows, SHAPE).double() * 2 - 1
        yield Batch(rows, {"image": x, "label": rng.integers(3, "y", rows, CLASSES)})


@cache
def alone(name: str) -> dict[Side, dict[str, torch.Tensor]]:
    """One process, the whole batch: weights, and what is remembered."""
    plain, batches = game(ALONE, name, none.Strategy), stream()
    for _ in range(STEPS):
        synchronous.step(plain, batches)
    assert distance(dict(plain.d.net.state_dict()), dict(make(Side.D, name)().state_dict())) > 1e-4
    assert all(abs(float(value)) > 1e-4 for value in plain.d.state.values())
    return {seat.side: seat.net.state_dict() | seat.state for seat in (plain.g, plain.d)}


def ranks_are_the_batch(world: World, name: str, kind: str, uneven: bool) -> float:
    """The largest difference of any weight, or of anything remembered, from the plain run."""
    row = sum(UNEVEN[world.size][: world.rank]) if uneven else 0
    share = (row, UNEVEN[world.size][world.rank]) if uneven else world.share(BATCH)
    gan, batches = game(world, name, partial(strategy, kind)), stream(*share)
    for _ in range(STEPS):
        synchronous.step(gan, batches)
    seats = (gan.g, gan.d)
    return max(distance(seat.strategy.weights(seat.net) | seat.state, alone(name)[seat.side]) for seat in seats)


def whole_rows(world: World) -> list:
    """Values in the order of the batch, and the gradient of all ranks' sums at the rows here."""
    total, counts = 20, UNEVEN[world.size]
    rows = Rows(0, sum(counts[: world.rank]), counts[world.rank], total)
    x = torch.arange(total, dtype=torch.float64)[rows.window, None].requires_grad_()
    found = gather_batch(x, rows, ReduceGroup(world.group))
    ((world.rank + 1) * found.square().sum()).backward()
    labels = gather_batch(torch.arange(total)[rows.window], rows, ReduceGroup(world.group))
    return [found[:, 0].tolist(), x.grad[:, 0].tolist(), labels.tolist()]
