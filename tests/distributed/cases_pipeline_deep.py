"""A pipeline of deep networks against one process."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.dist import ALONE, World
from paragan.core.network_factory import NetworkFactory
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.blocks import run_blocks
from paragan.layers.init import initialise
from paragan.layers.spectral_norm import spectral_norm
from paragan.losses import hinge
from paragan.parallel import Strategy, none
from paragan.penalties import r1
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.small_gan import distance

BLOCKS, WIDTH, CLASSES, ROWS, STEPS = 8, 6, 3, 8, 3
UNEVEN = (3, 2, 2, 1)
PENALTIES = (r1.Penalty(r1.Options(weight=0.3)),)


class Block(nn.Module):
    """A linear layer with spectral norm, and the class of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = spectral_norm(nn.Linear(WIDTH, WIDTH))
        self.table = nn.Embedding(CLASSES, WIDTH)

    def forward(self, h: Tensor, y_B: Tensor) -> Tensor:
        return F.silu(self.linear(h) + self.table(y_B)) + h


class Deep(nn.Module):
    """Eight blocks, and a last layer. outputs: 1 for a discriminator."""

    latent = WIDTH
    weight_init = "orthogonal"

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.last = nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor, y_B: Tensor) -> Tensor:
        out = self.last(run_blocks(self.blocks, x, y_B))
        return out.squeeze(1) if out.shape[1] == 1 else out


def _game(placed: Sequence[Strategy], world: World, parts: int) -> GAN:
    seats = []
    for side, one in zip(Side, placed, strict=True):
        outputs = WIDTH if side is Side.G else 1
        fill = partial(initialise, seed=0, stream=side.value)
        make = NetworkFactory(lambda outputs=outputs: Deep(outputs).double(), fill)
        policy = Policy(
            kind=torch.optim.Adam,
            lr=1e-2,
            arguments={"betas": (0.0, 0.9), "eps": 1e-3},
            max_norm=0.5,
            micro_batches=parts,
        )
        seats.append(Player(side=side, net=one.prepare(make, world), strategy=one, policy=policy))
    prior = Prior(seed=5, latent=WIDTH, num_classes=CLASSES, dtype=torch.float64)
    return GAN(g=seats[0], d=seats[1], loss=Loss(hinge.d_loss, hinge.g_loss), prior=prior, d_penalties=PENALTIES)


def _batches(first: int, count: int):
    for step in range(STEPS):
        rows = Rows(step=step, first=first, count=count, total=ROWS)
        x = rng.uniform(3, "x", rows, (WIDTH,)).double() * 2 - 1
        yield Batch(rows, {"image": x, "label": rng.integers(3, "y", rows, CLASSES)})


def difference(world: World, options: dict, uneven: bool) -> float:
    """The largest difference of any weight from one process with equal micro-batches."""
    share = (sum(UNEVEN[: world.rank]), UNEVEN[world.rank]) if uneven else world.share(ROWS)
    placed = [strategy("pipeline", options) for _ in Side]
    gans = (
        (_game(placed, world, 1), share),
        (_game((none.Strategy(), none.Strategy()), ALONE, options["micro_batches"]), (0, ROWS)),
    )
    for gan, rows in gans:
        batches = _batches(*rows)
        for _ in range(STEPS):
            synchronous.step(gan, batches)
    (found, _), (plain, _) = gans
    pairs = ((found.g, plain.g), (found.d, plain.d))
    return max(distance(a.strategy.weights(a.net), dict(b.net.state_dict())) for a, b in pairs)
