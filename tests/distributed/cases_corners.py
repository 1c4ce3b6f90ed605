"""Corners of strategies: terms that mix samples, low weights, skips, late penalties, tied weights."""

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed import distributed_c10d

from paragan import build
from paragan.config import read_recipe
from paragan.core.dist import ALONE, World
from paragan.core.network_factory import NetworkFactory
from paragan.core.types import Clock, Side
from paragan.engine.consistency import ConsistencyCheck
from paragan.features.base import classifier as classifier
from paragan.game.network import Calling
from paragan.game.optimizer_calls import Scaler
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.layers.init import initialise
from paragan.parallel import MemoryOptions, hsdp, local_sgd, none
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.matrix_gan import BATCH, Switches, game, make, player, stream
from tests.laws.small_gan import distance
from tests.tiny_run import TINY

G, D = Side.G, Side.D


def pure(world: World, name: str) -> tuple[list[str], float]:
    """Formats of a pure network's weights and of what is stepped; how far from float64 it ends, in ways walked."""
    on, seats = Switches(bn=True), []
    low = MemoryOptions(weight_dtype=torch.bfloat16)

    def play(memory, dtype, kind, where, share):
        players = []
        for side in (G, D):
            placing = strategy(kind) if kind != "none" else none.Strategy()
            placing.memory = memory
            making = replace(make(side, on), construct=lambda side=side: make(side, on).construct().to(dtype))
            calling = Calling(None if memory.weight_dtype is None else memory.weight_dtype)
            policy = Policy(kind=torch.optim.Adam, lr=1e-4, arguments={"betas": (0.0, 0.9)})
            players.append(
                Player(side=side, net=placing.prepare(making, where), strategy=placing, policy=policy, calling=calling)
            )
        gan = game(on, *players)
        gan.prior = replace(gan.prior, dtype=dtype)
        for batch in itertools.islice(stream(on, *share), 20):
            synchronous.step(gan, iter([replace(batch, tensors={**batch.tensors, "image": batch.image.to(dtype)})]))
        seats[:] = players
        copies = getattr(players[0].optimizer, "copies", None) or [p.detach() for p in players[0].net.parameters()]
        return torch.cat([c.detach().double().flatten() for c in copies])

    alone = ("none", ALONE, (0, BATCH))  # averaged is another algorithm
    exact = play(MemoryOptions(), torch.float64, *((name, world, world.share(BATCH)) if name == "local_sgd" else alone))
    mine = play(low, torch.float32, name, world, world.share(BATCH))
    formats = sorted({str(p.dtype) for p in seats[0].net.parameters()})
    stepped = sorted({str(p.dtype) for group in seats[0].optimizer.param_groups for p in group["params"]})
    start = torch.cat([p.detach().flatten() for p in make(G, on)().parameters()])
    if name == "zero1":  # this rank steps pieces only
        return [*formats, *stepped], 0.0
    return [*formats, *stepped], float((mine - exact).norm() / (exact - start).norm())


def skipped_on_one_rank(world: World) -> list[bool]:
    """Under `local_sgd`, an overflow in the rows of rank 1 at an averaging: whether weights and average stay equal."""
    on = Switches(bn=True)
    kind = local_sgd.Strategy(local_sgd.Options(every=2))
    gan = game(on, *(player(side, on, kind, world) for side in (G, D)))
    for step, batch in zip(range(4), stream(on, *world.share(BATCH)), strict=False):
        if world.rank == 1 and step in (0, 1):
            batch = replace(batch, tensors={**batch.tensors, "image": batch.image * float("inf")})
        synchronous.step(gan, iter([batch]))
    nets = (gan.g.net, gan.d.net, gan.g.ema.net)
    sums = [[float(t.double().sum()) for t in net.state_dict().values()] for net in nets]
    told = world.gather([*sums, int(gan.d.updates)])
    return [all(a == told[0][n] for a in (rank[n] for rank in told)) for n in range(4)] + [told[0][3] < 4]


class Normed(nn.Module):
    """D with batch norm of torch, which counts the batches of G's turns, too."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))

    def forward(self, x, y=None):
        return self.net(x).squeeze(1)


def foreign_norms(world: World, every: int) -> bool:
    """Under `local_sgd`, ranks are compared at each averaging: whether norms of torch in D pass."""
    on = Switches(conditional=False)
    kind = local_sgd.Strategy(local_sgd.Options(every=every))
    making = NetworkFactory(lambda: Normed().double(), partial(initialise, seed=0, stream="d"))
    d = Player(side=D, net=kind.prepare(making, world), strategy=kind, policy=Policy(kind=torch.optim.Adam, lr=1e-2))
    gan = game(on, player(G, on, kind, world), d)
    check = ConsistencyCheck(world, 1)
    for step, batch in zip(range(4), stream(on, *world.share(BATCH)), strict=False):
        synchronous.step(gan, iter([batch]))
        check.check(Clock(step=step + 1, images=0), {"g": gan.g, "d": gan.d})
    means = world.gather(d.net.net[2].running_mean.tolist())
    return means[0] != means[1]


class Tied(nn.Module):
    """Two layers that were given one weight when they were made."""

    weight_init = "torch"

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Parameter(torch.empty(6, 6))
        self.blocks = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        for block in self.blocks:
            block.weight = shared
        self.last = nn.Linear(6, 64)

    def forward(self, z, y=None):
        return self.last(self.blocks[1](self.blocks[0](z).relu()).relu()).unflatten(1, (1, 8, 8)).tanh()


def tied(world: World, name: str) -> float:
    """A weight that two layers share: the difference from one process. Neither network has a buffer."""
    on = Switches(sn=False, conditional=False)

    def play(kind, where, share):
        making = NetworkFactory(lambda: Tied().double(), partial(initialise, seed=0, stream="g"))
        g = Player(
            side=G, net=kind().prepare(making, where), strategy=kind(), policy=Policy(kind=torch.optim.Adam, lr=1e-2)
        )
        gan = game(on, g, player(D, on, kind(), where))
        told, check = stream(on, *share), ConsistencyCheck(where, 1)
        for _ in range(3):
            synchronous.step(gan, told)
            check.check(gan.clock, {"g": gan.g, "d": gan.d})
        return gan.g.strategy.weights(gan.g.net)

    mine = play(lambda: strategy(name), world, world.share(BATCH))
    return distance(mine, play(none.Strategy, ALONE, (0, BATCH)))


def patience(world: World) -> list[float]:
    """Seconds that the groups of hybrid sharding wait, beside the world's."""
    mesh = hsdp.Strategy(hsdp.Options(host=2)).mesh(world)
    groups = [world.group, *(mesh[name].get_group() for name in mesh.mesh_dim_names)]
    return [group._get_backend(world.device).options._timeout.total_seconds() for group in groups]


def groups(world: World) -> list[int]:
    """How many groups there are after each of three networks under hybrid sharding."""
    on, found = Switches(), []
    for side in (G, D, G):
        strategy("hsdp", {"host": 2}).prepare(make(side, on), world)
        found.append(len(distributed_c10d._world.pg_map))
    return found


def whole_run(world: World, folder: str, words: list[str]) -> list[str]:
    """What a run tells, by kind: two steps with telemetry, pictures, a checkpoint and a score."""
    trainer = build.trainer(read_recipe("digits", [*TINY, *words]), Path(folder), print, lambda: False, world=world)
    with patch.object(classifier, "STEPS", 20):  # a judge that judges badly
        return [event.kind for event in trainer.run()]


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


def overflow_in_a_piece(world: World, name: str) -> tuple[float, float, int, float]:
    """An overflow in rows of the last rank: how far D moves, its scale, its updates; how far it moves afterwards."""
    kind, on = strategy(name), Switches(conditional=False, r1=False)
    d = Player(
        side=D, net=kind.prepare(Overflowing, world), strategy=kind, policy=Policy(kind=torch.optim.Adam, lr=1e-2)
    )
    d.scaler = Scaler(world.device, initial=8.0)
    gan, told = game(on, player(G, on, strategy(name), world), d), stream(on, *world.share(BATCH))
    gan.d.update(gan.d_turn(next(told)), against=gan.g)
    before = {name: weight.clone() for name, weight in d.strategy.weights(d.net).items()}
    d.net.overflows = True
    gan.d.update(gan.d_turn(next(told)), against=gan.g)
    still = distance(before, d.strategy.weights(d.net))
    d.net.overflows = False
    gan.d.update(gan.d_turn(next(told)), against=gan.g)
    return still, float(d.scaler.scale), int(d.updates), distance(before, d.strategy.weights(d.net))
