"""Games of the numerical checks as data, and the same games for the library: one process or ranks, any strategy."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

import paragan as pg
from paragan.augment import ada, diffaugment
from paragan.balancers import gradient_balancer
from paragan.core import registry, rng
from paragan.core.dist import ALONE, World
from paragan.core.network_factory import NetworkFactory
from paragan.core.types import Batch, Rows, Side
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.init import initialise
from paragan.losses import relativistic_average
from paragan.models import contragan, fastgan, sngan, stylegan2
from paragan.optim import adabelief
from paragan.parallel import none
from paragan.schemes import extragradient, shared_fakes, synchronous
from tests.laws import matrix_gan, small_gan

BATCH, CLASSES, SHAPE, LATENT, SEED = 6, 3, (1, 8, 8), 6, 5
OPTIMIZERS = {"Adam": torch.optim.Adam, "adabelief": adabelief.Optimizer}
ADAM = {"lr": 1e-2, "betas": (0.0, 0.9), "eps": 1e-4}
MAX_NORM, HALF_LIFE, RAMP = 0.5, 20.0, 0.5  # of images
STYLE = {"latent": LATENT, "style": 4, "mapping": 2, "width": 4, "base": 32, "mixing": 0.9, "noise": True, "group": 3}
SCHEMES = {"synchronous": synchronous, "shared_fakes": shared_fakes.Scheme(), "extragradient": extragradient.Scheme()}
AUGMENTS = {
    "ada": lambda: ada.Augment(ada.Options(pipeline="bgc", target=0.25, p=0.4, kimg=0.1, interval=2)),
    "diffaugment": lambda: diffaugment.Augment(diffaugment.Options()),
}
ZOO = {
    "contragan": (contragan, contragan.Options(latent=LATENT, width=4, shared=5, embed=6)),
    "stylegan2": (stylegan2, stylegan2.Options(**STYLE)),
    "auxiliary": (sngan, sngan.Options(latent=LATENT, width=4, head="auxiliary")),
    "fastgan": (fastgan, fastgan.Options(latent=LATENT, width=2, conditional=True)),
}


@dataclass(frozen=True, kw_only=True)
class Game:
    """d, g: options of the players' penalties by name; `near` is a lazy term on G's images. k: updates of D per step.

    nets: `plain`; `batch norm` in both players; `spectral` norm in both, and features; `contragan`, with embeddings;
    `auxiliary`: SNGAN with class logits; `stylegan2`, whose D compares images; `fastgan`, with decoders.
    """

    loss: str = "hinge"
    d: dict[str, dict[str, Any]] = field(default_factory=dict)
    g: dict[str, dict[str, Any]] = field(default_factory=dict)
    k: int = 1
    parts: int = 1
    scheme: str = "synchronous"
    augment: str | None = None
    balanced: bool = False
    optimizer: str = "Adam"
    nets: str = "plain"
    bad: int | None = None  # number of a batch with a row of NaN


def factory(side: Side, game: Game) -> NetworkFactory:
    if game.nets == "spectral":
        return NetworkFactory(lambda: small_gan.network(side))
    if game.nets not in ZOO:
        return matrix_gan.make(side, matrix_gan.Switches(bn=game.nets == "batch norm", sn=False))
    file, options = ZOO[game.nets]
    kind = file.Generator if side is Side.G else file.Discriminator
    make = lambda: kind(options, SHAPE, CLASSES).double()  # noqa: E731
    return NetworkFactory(make, partial(initialise, seed=0, stream=side.value))


def prior() -> Prior:
    return Prior(seed=SEED, latent=LATENT, num_classes=CLASSES, dtype=torch.float64)


def penalty(name: str, options: dict[str, Any], side: Side) -> Any:
    if name == "near":
        return pg.Term(name=name, function=lambda outputs, feed: (outputs.images - 0.3).square(), **options)
    module = registry.load_module("penalties", name)
    sides = {"side": side.value} if hasattr(module.Options(), "side") else {}
    found = module.Penalty(module.Options(**sides, **options))
    found.state = {key: value.double() for key, value in found.state.items()}
    return found


def loss_of(name: str) -> Any:
    module = registry.load_module("losses", name)
    if module is relativistic_average:
        return module.loss(module.Options())
    return module.loss(module.Options()) if hasattr(module, "Options") else module.loss


def library(game: Game, world: World = ALONE, strategies: Any = (none.Strategy, none.Strategy)) -> GAN:
    """The game of the library. strategies: makers of G's and of D's."""
    players = {}
    for side, make in zip(Side, strategies, strict=True):
        strategy = make()
        policy = Policy(
            kind=OPTIMIZERS[game.optimizer],
            lr=ADAM["lr"],
            arguments={name: ADAM[name] for name in ("betas", "eps")},
            max_norm=MAX_NORM,
            micro_batches=game.parts,
            updates_per_step=game.k if side is Side.D else 1,
        )
        net = strategy.prepare(factory(side, game), world)
        average = strategy.prepare_average(factory(side, game), world) if side is Side.G else None
        ema = None if average is None else Ema(average, EmaOptions(HALF_LIFE / 1000, ramp=RAMP))
        players[side] = Player(side=side, net=net, strategy=strategy, policy=policy, ema=ema)
    of = {side: tuple(penalty(n, o, side) for n, o in getattr(game, side.value).items()) for side in Side}
    augment = None if game.augment is None else AUGMENTS[game.augment]()
    balancer = gradient_balancer.Balancer(gradient_balancer.Options()) if game.balanced else None
    return GAN(
        g=players[Side.G],
        d=players[Side.D],
        loss=loss_of(game.loss),
        prior=prior(),
        g_penalties=of[Side.G],
        d_penalties=of[Side.D],
        augment=augment,
        sum_over_ranks=world.sum,
        balancer=balancer,
    )


def step(game: Game, gan: GAN, stream: Any) -> Any:
    return SCHEMES[game.scheme].step(gan, stream)


def batches(first: int = 0, count: int = BATCH, start: int = 0, bad: int | None = None) -> Any:
    """Rows `first … first + count` of an endless stream of global batches, from number `start` on.

    bad: number of a batch whose fourth row is NaN.
    """
    number = start
    while True:
        rows = Rows(step=number, first=first, count=count, total=BATCH)
        x = rng.uniform(3, "x", Rows(step=number, first=0, count=BATCH, total=BATCH), SHAPE).double() * 2 - 1
        if number == bad:
            x[3] = float("nan")
        yield Batch(rows, {"image": x[rows.window], "label": rng.integers(3, "y", rows, CLASSES)})
        number += 1


def state(gan: GAN) -> dict[str, torch.Tensor]:
    """Whole weights, averages and states of terms, by name. Collective."""
    found = {}
    for player in (gan.g, gan.d):
        nets = {"net": player.net} | ({} if player.ema is None else {"ema": player.ema.net})
        for kind, net in nets.items():
            weights = player.strategy.weights(net)
            found |= {f"{player.side.value}/{kind}/{name}": value.clone() for name, value in weights.items()}
        found |= {f"{player.side.value}/state/{name}": value.clone() for name, value in player.state.items()}
        found[f"{player.side.value}/updates"] = player.updates.clone()
    return found
