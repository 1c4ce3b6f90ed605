"""Pain points of several ranks: what the naive code does and what ours does, on the same numbers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paragan.core.dist import ALONE, World
from paragan.core.errors import RankError
from paragan.core.loss import Loss
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.policy import Policy, Scaler
from paragan.game.prior import Prior
from paragan.parallel import none
from paragan.penalties import gradient_penalty, r1
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.distributed.naive_code import r1_alone
from tests.laws.matrix_gan import BATCH, Switches, game, make, player, stream
from tests.laws.small_gan import distance

G, D = Side.G, Side.D
UNEVEN_SHARE = ((0, 7), (7, 13))


def said(action) -> str:
    """The error's first line; empty: there was none."""
    try:
        action()
    except (RuntimeError, ValueError, AttributeError, RankError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def perceptron(*sizes: int) -> nn.Sequential:
    """Linear layers with a tanh between them, equal on all ranks; float64."""
    torch.manual_seed(1)
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1]).double()


def rows(world: World, total: int, seed: int = 2, width: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """A global batch and this rank's rows of it."""
    whole = torch.randn(total, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    first, count = world.share(total)
    return whole, whole[first : first + count]


def gradients(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


class Sloped(nn.Module):
    """A discriminator whose last bias has no part in the slope."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron(64, 6, 1)

    def forward(self, x, y=None):
        return self.net(x.flatten(1)).squeeze(1)


NOTHING = Loss(lambda real, fake: torch.zeros_like(real), lambda fake, real: -fake)


def penalty_alone(world: World, name: str) -> dict[str, Any]:
    """Two turns of R1 and nothing else: what is said, whether ranks agree after the first; ours from one process."""
    wrapped = DistributedDataParallel(Sloped(), **{"broadcast_buffers": False})
    _, mine = rows(world, 8, width=64)
    r1_alone(wrapped, mine).backward()
    slopes = world.gather(wrapped.module.net[0].weight.grad.flatten()[:5].tolist())
    ours = _penalised(lambda: strategy(name), world)
    plain = _penalised(none.Strategy, ALONE)
    start = dict(Sloped().state_dict())
    return {
        "again": said(lambda: r1_alone(wrapped, mine).backward()),
        "agree": slopes[0] == slopes[1],
        "ours": distance(ours, plain),
        "moved": distance(ours, start),
        "bias": distance({"": ours["net.2.bias"]}, {"": start["net.2.bias"]}),
    }


def _penalised(kind: Any, world: World) -> dict[str, torch.Tensor]:
    """D after 3 updates in which only the penalty is left of its loss; weight decay shows who was stepped."""
    on, mine = Switches(conditional=False), kind()
    policy = Policy(torch.optim.AdamW, 1e-2, {"weight_decay": 0.1})
    d, g = Player(D, mine.prepare(Sloped, world), mine, policy), player(G, on, kind(), world)
    gan = GAN(g, d, NOTHING, Prior(5, 6, dtype=torch.float64), d_penalties=(r1.Penalty(r1.Options(weight=3.0)),))
    told = stream(on, *world.share(BATCH))
    for _ in range(3):
        gan.d.update(gan.d_turn(next(told)), against=gan.g)
    return d.strategy.weights(d.net)


def mixed(world: World, name: str) -> dict[str, Any]:
    """A gradient penalty between real and fake: distance of gradients (naive), of weights (ours) from one process."""
    (real, mine), (fake, mine_too) = rows(world, 8), rows(world, 8, seed=3)

    def naive(net: nn.Module, x: torch.Tensor, z: torch.Tensor) -> dict[str, torch.Tensor]:
        torch.manual_seed(4)
        between = z.lerp(x, torch.rand(len(x), 1, dtype=x.dtype)).requires_grad_()
        (slope,) = torch.autograd.grad(net(between).sum(), between, create_graph=True)
        ((slope.norm(dim=1) - 1).square().mean() + net(between).mean() * 0).backward()
        return gradients(net)

    net = DistributedDataParallel(perceptron(5, 4, 1))
    found, expected = naive(net, mine, mine_too), naive(perceptron(5, 4, 1), real, fake)

    def ours(kind: Any, of: World, share: tuple[int, int]) -> dict[str, torch.Tensor]:
        on = Switches()
        gan = game(on, *(player(side, on, kind(), of) for side in (G, D)))
        gan.d_penalties = (gradient_penalty.Penalty(gradient_penalty.Options(weight=3.0)),)
        told = stream(on, *share)
        for _ in range(3):
            synchronous.step(gan, told)
        return gan.d.strategy.weights(gan.d.net)

    plain = ours(none.Strategy, ALONE, (0, BATCH))
    return {
        "naive": distance({key.removeprefix("module."): value for key, value in found.items()}, expected),
        "ours": distance(ours(lambda: strategy(name), world, UNEVEN_SHARE[world.rank]), plain),
        "moved": distance(plain, dict(make(D, Switches())().state_dict())),
    }


class Overflowing(nn.Module):
    """A discriminator whose first layer's last row overflows in the backward, wherever that row lies."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = nn.Linear(64, 8).double(), nn.Linear(8, 1).double()
        self.overflows = False

    def forward(self, x, y=None):
        h = self.first(x.flatten(1))
        if self.overflows and h.requires_grad:
            mask = torch.ones(8, dtype=h.dtype)
            mask[-1] = float("inf")
            h.register_hook(lambda grad: grad * mask)
        return self.last(F.silu(h)).squeeze(1)


def overflow_in_a_piece(world: World, name: str) -> dict[str, Any]:
    """After an overflow in rows of the last rank: who stepped, and by what scale it goes on; each rank, then ours."""
    piece = torch.nn.Parameter(torch.ones(2))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD([piece], 0.1)
    scaler.scale((piece * (float("inf") if world.rank == world.size - 1 else 1.0)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()

    kind, on = strategy(name), Switches(conditional=False, r1=False)
    d = Player(D, kind.prepare(Overflowing, world), kind, Policy(torch.optim.Adam, 1e-2))
    d.scaler = Scaler(world.device, initial=8.0)
    gan, told = game(on, player(G, on, strategy(name), world), d), stream(on, *world.share(BATCH))
    gan.d.update(gan.d_turn(next(told)), against=gan.g)
    before = {name: weight.clone() for name, weight in d.strategy.weights(d.net).items()}
    d.net.overflows = True
    gan.d.update(gan.d_turn(next(told)), against=gan.g)
    still = distance(before, d.strategy.weights(d.net))
    d.net.overflows = False
    gan.d.update(gan.d_turn(next(told)), against=gan.g)
    ours = {"still": still, "scale": float(d.scaler.scale), "updates": int(d.updates)}
    return {
        "naive": [bool((piece == 1).all()), scaler.get_scale()],
        "ours": {**ours, "moved": distance(before, d.strategy.weights(d.net))},
    }
