"""A game whose networks multiply spectra by complex weights, beside real ones, on the rows of this rank."""

import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.types import Batch, Rows, Side
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.losses import hinge
from paragan.parallel import Strategy, none
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.small_gan import distance

ROWS, WIDTH = 8, 6


class Spectral(nn.Module):
    def __init__(self, outputs: int, second: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(WIDTH, WIDTH, dtype=torch.complex128))
        self.real = nn.Parameter(0.3 * torch.randn(WIDTH, outputs, dtype=torch.float64))
        # without other weights in its block
        self.scale = None if second else nn.Parameter(torch.ones((), dtype=torch.complex128))

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.fft(x) @ self.weight.T
        return torch.fft.ifft(spectrum if self.scale is None else spectrum * self.scale).real @ self.real


class Net(nn.Module):
    latent = WIDTH

    def __init__(self, side: Side) -> None:
        super().__init__()
        self.side = side
        self.blocks = nn.ModuleList([Spectral(WIDTH, False), Spectral(WIDTH if side is Side.G else 1, True)])

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        x = self.blocks[1](self.blocks[0](x).tanh())
        return x if self.side is Side.G else x.squeeze(1)


def game(world: World, placed: list[Strategy]) -> GAN:
    players = []
    for side, one in zip(Side, placed, strict=True):

        def make(side: Side = side) -> nn.Module:
            torch.manual_seed(3)
            return Net(side)

        policy = Policy(kind=torch.optim.Adam, lr=1e-2, arguments={"eps": 1e-3}, max_norm=0.1)
        ema = Ema(one.prepare_average(make, world), EmaOptions(half_life_kimg=0.02))
        players.append(Player(side=side, net=one.prepare(make, world), strategy=one, policy=policy, ema=ema))
    return GAN(g=players[0], d=players[1], loss=hinge.loss, prior=Prior(seed=5, latent=WIDTH, dtype=torch.float64))


def stepped(gan: GAN, first: int, count: int) -> dict[str, Tensor]:
    """Weights and averages after three steps."""
    for step in range(3):
        rows = Rows(step=step, first=first, count=count, total=ROWS)
        synchronous.step(gan, iter([Batch(rows, {"image": rng.normal(1, "x", rows, (WIDTH,)).double()})]))
    nets = [(p, name, net) for p in (gan.g, gan.d) for name, net in (("net", p.net), ("ema", p.ema.net))]
    return {f"{p.side}.{name}.{k}": v for p, name, net in nets for k, v in p.strategy.weights(net).items()}


def difference(world: World, name: str) -> float:
    found = stepped(game(world, [strategy(name) for _ in Side]), *world.share(ROWS))
    return distance(found, stepped(game(ALONE, [none.Strategy() for _ in Side]), 0, ROWS))


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).double())])


def several_dtypes(world: World, name: str) -> str:
    try:
        strategy(name).prepare(Mixed, world)
    except ConfigError as error:
        return str(error)
    return "accepted"
