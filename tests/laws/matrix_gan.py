"""A GAN of 1x8x8 images for the law "ranks are the batch", with every switch of its matrix; float64."""

import itertools
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from paragan.core.dist import World
from paragan.core.network_factory import NetworkFactory
from paragan.core.outputs import DiscriminatorOutput
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Side
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.conditional_norm import batch_norm
from paragan.layers.init import initialise
from paragan.layers.spectral_norm import spectral_norm
from paragan.losses import hinge
from paragan.penalties import r1
from tests.laws.small_gan import CLASSES, LATENT, batches

BATCH, STEPS = 20, 3


@dataclass(frozen=True)
class Switches:
    """bn: cross-rank batch norm in both networks. sn: spectral norm. micro_batches: accumulation. groups: of the
    optimisers' parameters; not in the matrix.
    """

    bn: bool = False
    sn: bool = True
    r1: bool = True
    micro_batches: int = 1
    conditional: bool = True
    groups: bool = False


GROUPS = ({"match": "*.bias", "lr": 3e-2}, {"match": "blocks.1.*", "betas": (0.5, 0.99), "weight_decay": 0.1})
MATRIX = tuple(
    Switches(*values)
    for values in itertools.product((False, True), (False, True), (False, True), (1, 4), (False, True))
)


class Block(nn.Module):
    """(linear or convolution), batch norm if asked for, SiLU.

    No bias before a batch norm: its gradient is rounding, which Adam would make steps of.
    """

    def __init__(self, layer: nn.Module, channels: int, on: Switches) -> None:
        super().__init__()
        self.layer = spectral_norm(layer) if on.sn else layer
        self.norm = batch_norm(channels, CLASSES if on.conditional else 0) if on.bn else None

    def forward(self, h, y):
        h = self.layer(h)
        return F.silu(h if self.norm is None else self.norm(h, y))


class Net(nn.Module):
    weight_init = "orthogonal"

    def __init__(self, blocks: list[nn.Module], last: nn.Module, classes: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.last = last
        self.embed = nn.Embedding(classes, width) if classes else None
        self.gamma = nn.Parameter(torch.zeros(()))  # without axes, as in self-attention: cannot be cut

    def fill(self, role, tensor, generator):
        tensor.fill_(0.1)


class Generator(Net):
    def __init__(self, on: Switches) -> None:
        classes = CLASSES if on.conditional else 0
        blocks = [
            Block(nn.Linear(LATENT + (4 if classes else 0), 24, bias=not on.bn), 24, on),
            Block(nn.Linear(24, 6 * 16, bias=not on.bn), 96, on),
            Block(nn.Conv2d(6, 5, 3, padding=1, bias=not on.bn), 5, on),
        ]
        super().__init__(blocks, nn.Conv2d(5, 1, 3, padding=1), classes, 4)

    def forward(self, z, y=None):
        h = z if self.embed is None else torch.cat([z, self.embed(y)], 1)
        h = self.blocks[1](self.blocks[0](h, y), y).unflatten(1, (6, 4, 4))
        h = self.blocks[2](F.interpolate(h, scale_factor=2), y)
        return torch.tanh(self.last(h + self.gamma * h.square()))


class Discriminator(Net):
    def __init__(self, on: Switches) -> None:
        layers = [nn.Conv2d(a, b, 3, padding=1, bias=not on.bn) for a, b in ((1, 5), (5, 7))]
        blocks = [Block(layer, layer.out_channels, on) for layer in layers]
        super().__init__(blocks, nn.Linear(7, 1), CLASSES if on.conditional else 0, 7)

    def forward(self, x, y=None):
        h = self.blocks[1](F.avg_pool2d(self.blocks[0](x, y), 2), y).sum((2, 3))
        h = h + self.gamma * h.square()
        logits = self.last(h).squeeze(1)
        return DiscriminatorOutput.of(logits if self.embed is None else logits + (self.embed(y) * h).sum(1))


def make(side: Side, on: Switches) -> NetworkFactory:
    kind = Generator if side is Side.G else Discriminator
    return NetworkFactory(lambda: kind(on).double(), partial(initialise, seed=0, stream=side.value))


def player(side: Side, on: Switches, strategy, world: World) -> Player:
    """Clipping binds: its norm has to be the global one."""
    policy = Policy(
        kind=torch.optim.Adam,
        lr=1e-2,
        arguments={"betas": (0.0, 0.9)},
        max_norm=0.5,
        micro_batches=on.micro_batches,
        groups=GROUPS if on.groups else (),
    )
    net = strategy.prepare(make(side, on), world)
    ema = (
        Ema(strategy.prepare_average(make(side, on), world), EmaOptions(half_life_kimg=0.02))
        if side is Side.G
        else None
    )
    return Player(side=side, net=net, strategy=strategy, policy=policy, ema=ema)


def game(on: Switches, g: Player, d: Player) -> GAN:
    penalties = (r1.Penalty(r1.Options(weight=0.3, interval=2)),) if on.r1 else ()
    prior = Prior(seed=5, latent=LATENT, num_classes=CLASSES if on.conditional else 0, dtype=torch.float64)
    return GAN(g=g, d=d, loss=Loss(hinge.d_loss, hinge.g_loss), prior=prior, d_penalties=penalties)


def stream(on: Switches, first: int = 0, count: int = BATCH):
    """Rows of an endless stream of global batches."""
    for batch in batches(first, count, total=BATCH):
        yield batch if on.conditional else Batch(batch.rows, {"image": batch.image})
