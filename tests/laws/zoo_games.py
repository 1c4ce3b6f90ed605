"""Small games of every image model of the zoo, whose networks draw what they can draw, in float64."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core import registry, rng
from paragan.core.dist import ALONE, World
from paragan.core.network_factory import NetworkFactory
from paragan.core.types import Batch, Rows, Side
from paragan.game.gan import GAN
from paragan.game.network import Calling
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.init import initialise
from paragan.losses import hinge
from paragan.parallel import Strategy, none
from paragan.penalties import path_length
from tests.contract.small_networks import options

ROWS = 8
DRAWING = {"mixing": 0.9, "noise": True, "dropout": 0.5}
SIDES = {"pix2pix": 64}  # smaller ones have no layer with dropout; others: 16
SMALL = {"pix2pix": {"width": 2}}
NOT_MIXING = {"norm": "instance", "g_norm": "none", "d_norm": "none", "group": 1}


def construct(model: str, side: Side, wanted: Mapping[str, Any]) -> nn.Module:
    module = registry.load_module("models", model)
    kind = module.Generator if side is Side.G else module.Discriminator
    made = options(model, conditional=False, **DRAWING, **SMALL.get(model, {}), **wanted)
    return kind(made, shape(model), 0).double()


def shape(model: str) -> tuple[int, int, int]:
    side = SIDES.get(model, 16)
    return 3, side, side


def fill(side: Side, net: nn.Module) -> None:
    """Initial weights, with noise of some strength."""
    initialise(net, 0, side.value)
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if name.endswith("strength"):
                weight.fill_(0.3)


def player(
    model: str,
    side: Side,
    placed: Strategy,
    world: World = ALONE,
    parts: int = 1,
    wanted: Mapping[str, Any] | None = None,
    calling: Calling | None = None,
) -> Player:
    make = NetworkFactory(lambda: construct(model, side, wanted or {}), partial(fill, side))
    policy = Policy(kind=torch.optim.Adam, lr=1e-2, arguments={"betas": (0.0, 0.9), "eps": 1e-3}, micro_batches=parts)
    return Player(
        side=side, net=placed.prepare(make, world), strategy=placed, policy=policy, calling=calling or Calling()
    )


def game(g: Player, d: Player, model: str, styled: bool = False) -> GAN:
    """styled: with path length, which calls G on every other row."""
    terms = (path_length.Penalty(path_length.Options(interval=1)),) if styled else ()
    latent = construct(model, Side.G, {}).latent
    return GAN(g=g, d=d, loss=hinge.loss, prior=Prior(seed=5, latent=latent, dtype=torch.float64), g_penalties=terms)


def alone(model: str, parts: int = 1, wanted: Mapping[str, Any] | None = None, styled: bool = False) -> GAN:
    return game(*(player(model, side, none.Strategy(), parts=parts, wanted=wanted) for side in Side), model, styled)


def batches(model: str, first: int = 0, count: int = ROWS) -> Iterator[Batch]:
    names = ("image", "condition") if model == "pix2pix" else ("image",)
    step = 0
    while True:
        rows = Rows(step=step, first=first, count=count, total=ROWS)
        images = {name: rng.uniform(3, name, rows, shape(model)).double() * 2 - 1 for name in names}
        yield Batch(rows, images)
        step += 1


def weights(gan: GAN) -> dict[str, Tensor]:
    players = (gan.g, gan.d)
    return {f"{p.side.value}.{k}": v for p in players for k, v in p.strategy.weights(p.net).items()}
