"""A small flow and its few-step game on the rows of this rank, in float64."""

import torch

import paragan as pg
from paragan.augment import flow_noise
from paragan.core import rng
from paragan.core.dist import ALONE, World
from paragan.core.types import Side
from paragan.layers.init import initialise
from paragan.models import flow_unet
from paragan.penalties import approximate_r1, flow_matching
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.small_gan import distance

BATCH, STEPS, SHAPE, CLASSES = 7, 3, (1, 8, 8), 3
OPTIONS = flow_unet.Options(width=8, embed=5, steps=2)
RATES = {"betas": (0.0, 0.9), "eps": 1e-4}


def network(side: Side) -> torch.nn.Module:
    kind = flow_unet.Generator if side is Side.G else flow_unet.Discriminator
    net = kind(OPTIONS, SHAPE, CLASSES)
    initialise(net.double(), 0, side.value)
    return net


def player(side: Side, kind: str, world: World) -> pg.Player:
    chosen = strategy(kind)
    policy = pg.Policy(kind=torch.optim.Adam, lr=1e-3, arguments=RATES, micro_batches=1)
    return pg.Player(side=side, net=chosen.prepare(lambda: network(side), world), strategy=chosen, policy=policy)


def game(kind: str, world: World, few_step: bool) -> pg.GAN:
    g, d = (player(side, kind, world) for side in Side)
    prior = pg.Prior(seed=5, latent=64, num_classes=CLASSES, dtype=torch.float64)
    loss = pg.nonsaturating_loss(pg.NonsaturatingOptions())
    if not few_step:
        adversarial = pg.AdversarialOptions(weight=0.0, d_start_kimg=1e9)
        terms = (flow_matching.Penalty(flow_matching.Options()),)
        return pg.GAN(g=g, d=d, loss=loss, prior=prior, g_penalties=terms, adversarial=adversarial)
    options = approximate_r1.Options(weight=0.5, sigma=0.1, divide_by_sigma_squared=True, fraction=0.5)
    noise = flow_noise.Augment(flow_noise.Options())
    return pg.GAN(g=g, d=d, loss=loss, prior=prior, d_penalties=(approximate_r1.Penalty(options),), augment=noise)


def batches(first: int, count: int):
    for step in range(STEPS):
        rows = pg.Rows(step=step, first=first, count=count, total=BATCH)
        x = rng.uniform(3, "x", rows, SHAPE).double() * 2 - 1
        yield pg.Batch(rows, {"image": x, "label": rng.integers(3, "y", rows, CLASSES)})


def ranks_are_the_batch(world: World, kind: str, few_step: bool) -> list[float]:
    """The largest difference of a weight from one process, and the largest change of one."""
    gans = [game(kind, world, few_step), game("none", ALONE, few_step)]
    for gan, share in zip(gans, (world.share(BATCH), (0, BATCH)), strict=True):
        rows = batches(*share)
        for _ in range(STEPS):
            synchronous.step(gan, rows)
    here, alone = gans
    pairs = ((here.g, alone.g), (here.d, alone.d))
    moved = distance(dict(alone.g.net.state_dict()), dict(network(Side.G).state_dict()))
    return [max(distance(a.strategy.weights(a.net), dict(b.net.state_dict())) for a, b in pairs), moved]
