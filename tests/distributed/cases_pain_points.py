"""Pain points of several ranks: what the naive code does and what ours does, on the same numbers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paragan.augment import diffaugment
from paragan.core.clock import Clock
from paragan.core.dist import ALONE, World
from paragan.core.errors import RankError
from paragan.core.loss import Loss
from paragan.core.types import Rows, Side
from paragan.engine.consistency import ConsistencyCheck
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.policy import Policy, Scaler
from paragan.game.prior import Prior
from paragan.parallel import none
from paragan.parallel._placement import placement_of
from paragan.penalties import gradient_penalty, r1
from paragan.schemes import synchronous
from tests.distributed.cases_laws import differences, strategy
from tests.distributed.naive_code import Both, counted, r1_alone
from tests.laws.matrix_gan import BATCH, Switches, game, make, player, stream
from tests.laws.small_gan import distance

G, D = Side.G, Side.D
UNEVEN_SHARE = ((0, 7), (7, 13))
STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "local_sgd")


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


def pair(world: World, names: tuple[str, str], on: Switches) -> GAN:
    return game(on, *(player(side, on, strategy(name), world) for side, name in zip((G, D), names, strict=True)))


def one_wrapper(world: World) -> dict[str, Any]:
    """D's turn and the next one, both networks in one wrapper; ours over some steps."""
    both = DistributedDataParallel(Both(perceptron(5, 4), perceptron(4, 1)))

    def play() -> None:
        for turn in ("d", "g"):
            both(rows(world, 8)[1], turn).mean().backward()

    share = world.share(BATCH)
    return {"naive": said(play), "ours": differences(world, ("ddp", "ddp"), Switches(), share, "synchronous", {})}


def opponent(world: World) -> dict[str, Any]:
    """Bytes of D's gradients in G's turn, and what is left of them: each network in a wrapper, and ours."""
    g, d = DistributedDataParallel(perceptron(5, 4)), DistributedDataParallel(perceptron(4, 1))
    naive = counted(d)
    d(g(rows(world, 8)[1])).mean().backward()
    gan = pair(world, ("ddp", "ddp"), Switches())
    ours = counted(placement_of(gan.d.net).training_module)
    gan.g.update(gan.g_turn(next(stream(Switches(), *world.share(BATCH)))), against=gan.d)
    return {"naive": [sum(naive), len(gradients(d))], "ours": [sum(ours), len(gradients(gan.d.net))]}


def called_past_the_wrapper(world: World) -> dict[str, Any]:
    """A loop that calls the wrapped module itself, in plain torch and as players that nothing joins; ours."""
    net = DistributedDataParallel(perceptron(5, 4, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net.module(rows(world, 8)[1]).square().mean().backward()
    optimizer.step()
    weights = world.gather(net.module[0].weight.flatten().tolist())

    def check(kind) -> str:
        gan = game(Switches(), *(player(side, Switches(), kind(), world) for side in (G, D)))
        synchronous.step(gan, stream(Switches(), *world.share(BATCH)))
        return said(lambda: ConsistencyCheck(world, 1).check(Clock(step=1), {"g": gan.g, "d": gan.d}))

    return {"naive": weights[0] == weights[1], "checked": check(none.Strategy), "ours": check(lambda: strategy("ddp"))}


def latents(world: World) -> dict[str, Any]:
    """How many of 8 latents, and of 8 augmented images, are different ones, over all ranks."""
    share = Rows(3, *world.share(8), 8)
    torch.manual_seed(5)
    naive = {"z": torch.randn(share.count, 4), "shift": torch.randint(9, (share.count, 6))}
    prior, image = Prior(5, 4), torch.arange(2.0 * 64).view(2, 8, 8).expand(share.count, 2, 8, 8)
    augment = diffaugment.Augment(diffaugment.Options())
    ours = {"z": prior.draw("g", share)[0], "shift": augment(image, 5, "augment/g/fake", share)}
    alone = prior.draw("g", Rows(3, 0, 8, 8))[0]

    def different(drawn) -> int:
        everyone = [row for rank in world.gather(drawn.flatten(1).tolist()) for row in rank]
        return len({tuple(row) for row in everyone})

    return {
        "naive": {name: different(drawn) for name, drawn in naive.items()},
        "ours": {name: different(drawn) for name, drawn in ours.items()},
        "alone": torch.equal(alone[share.window], ours["z"]),
    }


def attributes(world: World) -> dict[str, Any]:
    """What is said where a loop asks the network for its blocks, and whether its names are the plain ones."""
    naive, plain = DistributedDataParallel(perceptron(5, 1)), make(D, Switches())()
    ours = {}
    for name in STRATEGIES:
        seat = player(D, Switches(), strategy(name), world)
        ours[name] = len(seat.net.blocks) == len(plain.blocks) and list(seat.net.state_dict()) == [*plain.state_dict()]
    return {"naive": said(lambda: naive.blocks), "names": next(iter(naive.state_dict())), "ours": ours}


def accumulation(world: World) -> dict[str, Any]:
    """Exchanged bytes of one update in four parts, over those of one in one part."""

    def naive(parts: int) -> int:
        net = DistributedDataParallel(perceptron(5, 4, 1))
        sent = counted(net)
        for part in rows(world, 16)[1].chunk(parts):
            (net(part).square().mean() / parts).backward()
        return sum(sent)

    def ours(parts: int) -> int:
        on = Switches(micro_batches=parts)
        gan = pair(world, ("ddp", "ddp"), on)
        sent = counted(placement_of(gan.d.net).training_module)
        gan.d.update(gan.d_turn(next(stream(on, *world.share(BATCH)))), against=gan.g)
        return sum(sent)

    return {"naive": naive(4) / naive(1), "ours": ours(4) / ours(1)}


def global_batch(world: World, total: int) -> dict[str, Any]:
    """Distance from one process: `total` rows on every rank; the rows shared out, mean of the ranks' means; ours."""
    whole, mine = rows(world, total)
    target = perceptron(5, 4, 1)
    target(whole).square().mean().backward()

    def of(x: torch.Tensor) -> float:
        net = DistributedDataParallel(perceptron(5, 4, 1))
        net(x).square().mean().backward()
        return distance(gradients(net.module), gradients(target))

    everyone = rows(world, total * world.size)[0].chunk(world.size)[world.rank]
    gan = pair(world, ("ddp", "ddp"), Switches())
    synchronous.step(gan, stream(Switches(), *world.share(BATCH)))
    share = UNEVEN_SHARE[world.rank] if total % 2 else world.share(BATCH)
    return {
        "batch per rank": of(everyone),
        "mean of means": of(mine),
        "ours": differences(world, ("ddp", "ddp"), Switches(), share, "synchronous", {}),
        "images": gan.clock.images / BATCH,
    }


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
