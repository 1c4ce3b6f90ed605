"""What strategies send, hold and do, by ranks that really exchange."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.game.ema import Ema
from paragan.game.network import Calling
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.parallel import averaged, none
from paragan.parallel._demands import Demands
from paragan.parallel._placed import placed
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.matrix_gan import BATCH, Switches, game, make, player, stream
from tests.laws.small_gan import batches, distance

G, D = Side.G, Side.D


def _play(on: Switches, world: World, kind, steps: int, total: int = BATCH):
    gan = game(on, *(player(side, on, kind(), world) for side in (G, D)))
    first, count = world.share(total)
    told = batches(first, count, total=total)
    for _ in range(steps):
        synchronous.step(gan, told)
    return gan


def payload(world: World, name: str, options: dict[str, Any], parts: int, total: int) -> dict[str, float]:
    """Bytes by kind and sample of 4 steps, as the library counts them, and as torch's reducer was given them."""
    world = replace(world, sent=type(world.sent)())
    on, reduced = Switches(bn=True, parts=parts), [0]
    gan = game(on, *(player(side, on, strategy(name, options), world) for side in (G, D)))

    def hook(state, bucket):
        reduced[0] += bucket.buffer().numel() * bucket.buffer().element_size()
        done = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return done.then(lambda _: bucket.buffer().div_(world.size))

    if name == "ddp":
        for seat in (gan.g, gan.d):
            placed(seat.net).trained.register_comm_hook(None, hook)
    told = batches(*world.share(total), total=total)
    for _ in range(4):
        synchronous.step(gan, told)
    samples = 4 * total
    return {kind: count / samples for kind, count in world.sent.items()} | {"reduced": reduced[0] / samples}


def averaged_every_update(world: World) -> float:
    """With plain gradient descent an average of weights is an average of gradients: the difference from one process."""
    on = Switches()
    policy = Policy(torch.optim.SGD, 1e-2, parts=1)

    def seats(kind, world):
        for side in (G, D):
            average = Ema(kind().average(make(side, on), world), EmaOptions(half_life_kimg=0.02))
            yield Player(side, kind().prepare(make(side, on), world), kind(), policy, ema=average)

    ours = game(on, *seats(lambda: averaged.Strategy(averaged.Options(every=1)), world))
    plain = game(on, *seats(none.Strategy, ALONE))
    mine, whole = stream(on, *world.share(BATCH)), stream(on)
    for _ in range(3):
        synchronous.step(ours, mine)
        synchronous.step(plain, whole)
    return max(
        distance(seat.strategy.weights(net), dict(other.state_dict()))
        for seat, net, other in (
            (ours.g, ours.g.net, plain.g.net),
            (ours.d, ours.d.net, plain.d.net),
            (ours.g, ours.g.ema.net, plain.g.ema.net),
        )
    )


def apart_and_together(world: World, narrow: bool) -> list[bool]:
    """After each of 4 updates, every 2 of which average: whether all ranks hold equal weights, buffers and average."""
    on = Switches(bn=True)
    demands = Demands(narrow=narrow)
    gan = game(on, *(player(side, on, averaged.Strategy(averaged.Options(every=2), demands), world) for side in (G, D)))
    told, found = stream(on, *world.share(BATCH)), []
    for _ in range(4):
        synchronous.step(gan, told)
        tensors = [*gan.g.net.state_dict().values(), *gan.d.net.state_dict().values()]
        sums = [float(t.double().sum()) for t in tensors]
        average = [float(t.double().sum()) for t in gan.g.ema.net.state_dict().values()]
        told_by_all = world.gather([sums, average])
        assert all(a == told_by_all[0][1] for _, a in told_by_all)
        found.append(all(s == told_by_all[0][0] for s, _ in told_by_all))
    return found


def unit_vectors(world: World) -> float:
    """The longest that any vector of spectral norm is from length 1 after an averaging."""
    gan = _play(Switches(), world, lambda: averaged.Strategy(averaged.Options(every=2)), 2)
    vectors = [b for net in (gan.g.net, gan.d.net) for n, b in net.named_buffers() if n.endswith((".u", ".v"))]
    return max(float((v.norm() - 1).abs()) for v in vectors)


def with_demands(world: World, name: str, demands: dict[str, Any]) -> tuple[float, float]:
    """The largest difference of weights from the same strategy without demands, and from the start."""
    on = Switches(bn=True, parts=2)

    def kind(asked: Demands):
        made = strategy(name)
        made.demands = asked
        return made

    ours = _play(on, world, lambda: kind(Demands(**demands)), 3)
    plain = _play(on, world, lambda: kind(Demands()), 3)
    start = {side: dict(make(side, on)().state_dict()) for side in Side}
    seats = ((ours.g, plain.g), (ours.d, plain.d))
    pairs = [(a.strategy.weights(a.net), b.strategy.weights(b.net), start[a.side]) for a, b in seats]
    return max(distance(a, b) for a, b, _ in pairs), min(distance(a, s) for a, _, s in pairs)


class Partial(nn.Module):
    """A generator with a weight that no turn ever reaches, and one that only odd rows would."""

    weight_init = "torch"

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(6, 64), nn.Linear(6, 64)

    def forward(self, z, y=None):
        return self.used(z).unflatten(1, (1, 8, 8)).tanh()


def unreached(world: World, name: str) -> tuple[float, bool]:
    """With a layer that nothing uses: the difference from one process, and whether the layer has moved."""
    on = Switches(conditional=False)

    def play(kind, world, share):
        torch.manual_seed(1)
        net = Partial().double()
        policy = Policy(torch.optim.AdamW, 1e-2, {"weight_decay": 0.1})
        g = Player(G, kind().prepare(lambda: net, world), kind(), policy)
        gan = game(on, g, player(D, on, kind(), world))
        told = stream(on, *share)
        for _ in range(3):
            synchronous.step(gan, told)
        return gan.g.strategy.weights(gan.g.net)

    torch.manual_seed(1)
    start = Partial().double().unused.weight.detach()
    ours = play(lambda: strategy(name), world, world.share(BATCH))
    plain = play(none.Strategy, ALONE, (0, BATCH))
    return distance(ours, plain), not torch.equal(ours["unused.weight"], start)


def coupled(world: World, name: str) -> str:
    """What is said to an objective with a term that mixes samples."""
    on = Switches()
    gan = game(on, *(player(side, on, strategy(name), world) for side in (G, D)))
    whole = gan._g_objective

    def objective(outputs, feed):
        terms = whole(outputs, feed)
        return replace(terms, coupled={"spread": outputs.fake.logits_B.var()})

    object.__setattr__(gan, "_g_objective", objective)
    try:
        synchronous.step(gan, stream(on, *world.share(BATCH)))
    except ConfigError as error:
        return str(error)
    return ""


def pure(world: World, name: str) -> tuple[list[str], float]:
    """Formats of a pure network's weights and of what is stepped; how far from float64 it ends, in ways walked."""
    on, seats = Switches(bn=True), []
    low = Demands(pure=torch.bfloat16)

    def play(demands, dtype, kind, where, share):
        players = []
        for side in (G, D):
            placing = strategy(kind) if kind != "none" else none.Strategy()
            placing.demands = demands
            making = replace(make(side, on), construct=lambda side=side: make(side, on).construct().to(dtype))
            calling = Calling(None if demands.pure is None else demands.pure)
            policy = Policy(torch.optim.Adam, 1e-4, {"betas": (0.0, 0.9)})
            players.append(Player(side, placing.prepare(making, where), placing, policy, calling))
        gan = game(on, *players)
        gan.prior = replace(gan.prior, dtype=dtype)
        for batch in itertools.islice(stream(on, *share), 20):
            synchronous.step(gan, iter([replace(batch, x_BCHW=batch.x_BCHW.to(dtype))]))
        seats[:] = players
        copies = getattr(players[0].optimizer, "copies", None) or [p.detach() for p in players[0].net.parameters()]
        return torch.cat([c.detach().double().flatten() for c in copies])

    alone = ("none", ALONE, (0, BATCH))  # averaged is another algorithm
    exact = play(Demands(), torch.float64, *((name, world, world.share(BATCH)) if name == "averaged" else alone))
    mine = play(low, torch.float32, name, world, world.share(BATCH))
    formats = sorted({str(p.dtype) for p in seats[0].net.parameters()})
    stepped = sorted({str(p.dtype) for group in seats[0].optimizer.param_groups for p in group["params"]})
    start = torch.cat([p.detach().flatten() for p in make(G, on)().parameters()])
    if name == "zero1":  # this rank steps pieces only
        return [*formats, *stepped], 0.0
    return [*formats, *stepped], float((mine - exact).norm() / (exact - start).norm())
