"""What strategies send, hold and do, by ranks that really exchange."""

import math
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn

from paragan.core.dist import ALONE, World
from paragan.core.types import Side
from paragan.game.ema import Ema
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.parallel import MemoryOptions, local_sgd, none
from paragan.parallel.base.placement import placement_of
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
    on, reduced = Switches(bn=True, micro_batches=parts), [0]
    gan = game(on, *(player(side, on, strategy(name, options), world) for side in (G, D)))

    def hook(state, bucket):
        reduced[0] += bucket.buffer().numel() * bucket.buffer().element_size()
        done = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return done.then(lambda _: bucket.buffer().div_(world.size))

    if name == "ddp":
        for seat in (gan.g, gan.d):
            placement_of(seat.net).training_module.register_comm_hook(None, hook)
    told = batches(*world.share(total), total=total)
    for _ in range(4):
        synchronous.step(gan, told)
    samples = 4 * total
    return {kind: count / samples for kind, count in world.sent.items()} | {"reduced": reduced[0] / samples}


def sharded_traffic(world: World, name: str) -> dict[str, float]:
    """Bytes of `parameters` of one update of D, passed and on links, and of its weights that are sharded and not."""
    world = replace(world, sent=type(world.sent)(), on_links={})
    on = Switches(r1=False)
    gan = game(on, *(player(side, on, strategy(name), world) for side in (G, D)))
    (real,) = (next(stream(on, *world.share(BATCH))),)
    turn = gan.d_turn(real)
    fakes = (torch.zeros(real.rows.count, 1, 8, 8, dtype=torch.float64),)
    world.sent.clear(), world.on_links.clear()
    gan.d.update(replace(turn, feed=replace(turn.feed, fakes=fakes)), against=gan.g)
    shapes = [tuple(p.shape) for p in gan.d.net.parameters()]
    rows = sum(-(-shape[0] // world.size) * math.prod(shape[1:]) for shape in shapes if shape)  # with padding
    sizes = [8 * rows, 8 * sum(1 for shape in shapes if not shape)]
    return {"sent": world.sent["parameters"], "links": world.on_links["parameters"], "sizes": sizes}


def averaged_every_update(world: World) -> float:
    """With plain gradient descent an average of weights is an average of gradients: the difference from one process."""
    on = Switches()
    groups = ({"match": "*.bias", "lr": 3e-2}, {"match": "blocks.1.*", "momentum": 0.5})
    policy = Policy(kind=torch.optim.SGD, lr=1e-2, groups=groups)

    def seats(kind, world):
        for side in (G, D):
            average = Ema(kind().prepare_average(make(side, on), world), EmaOptions(half_life_kimg=0.02))
            yield Player(
                side=side, net=kind().prepare(make(side, on), world), strategy=kind(), policy=policy, ema=average
            )

    ours = game(on, *seats(lambda: local_sgd.Strategy(local_sgd.Options(every=1)), world))
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
    memory = MemoryOptions(bf16_reduce=narrow)
    gan = game(
        on, *(player(side, on, local_sgd.Strategy(local_sgd.Options(every=2), memory), world) for side in (G, D))
    )
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


def synchronized_gradients(world: World, every: int, average_every: int, steps: int) -> list:
    """The largest difference of this rank's networks from a plain loop over replicas, and the ranks' spread by step."""
    on = Switches()
    kind = local_sgd.Strategy(local_sgd.Options(every=every, synchronize="gradients"))
    ours = game(on, *(player(side, on, kind, world) for side in (G, D)))
    replicas = [game(on, *(_unclipped(side, on) for side in (G, D))) for _ in range(world.size)]
    shares = [world_share(BATCH, rank, world.size) for rank in range(world.size)]
    mine, streams = stream(on, *world.share(BATCH)), [stream(on, *share) for share in shares]
    spread = []
    for update in range(1, steps + 1):
        with patch.object(local_sgd, "_AVERAGE_EVERY", average_every):
            synchronous.step(ours, mine)
        reals = [next(one) for one in streams]
        for side in (D, G):
            _plain_update(side, replicas, reals, update % every == 0, update % average_every == 0)
        for replica in replicas:
            replica.report(BATCH, {})
        weights = [float(sum(p.sum() for p in net.parameters())) for net in (ours.g.net, ours.d.net)]
        spread.append(max(abs(a - b) for a, b in zip(*world.gather(weights), strict=True)))
    here = replicas[world.rank]
    pairs = ((ours.g.net, here.g.net), (ours.d.net, here.d.net))
    return [max(distance(dict(a.state_dict()), dict(b.state_dict())) for a, b in pairs), spread]


def world_share(total: int, rank: int, size: int) -> tuple[int, int]:
    return replace(ALONE, rank=rank, size=size).share(total)


def _unclipped(side: Side, on: Switches) -> Player:
    return Player(
        side=side,
        net=make(side, on)(),
        strategy=none.Strategy(),
        policy=Policy(kind=torch.optim.Adam, lr=1e-2, arguments={"betas": (0.0, 0.9)}),
    )


@torch.no_grad()
def _plain_update(side: Side, replicas: list, reals: list, is_synchronized: bool, is_averaged: bool) -> None:
    """One update of a player of all replicas: mean or local gradients, clipped, then Adam; perhaps mean weights."""
    name, other = side.value, (G if side is D else D).value
    players, computed = [getattr(gan, name) for gan in replicas], []
    for gan, mine, real in zip(replicas, players, reals, strict=True):
        turn = gan.d_turn(real) if side is D else gan.g_turn(real)
        with torch.enable_grad():
            computed.append(mine.compute_gradients(turn, against=getattr(gan, other)))
    weights = list(zip(*(mine.net.parameters() for mine in players), strict=True))
    for same in weights:
        local = [weight.grad * len(players) for weight in same]  # of a mean over the rows of one rank
        mean = sum(local) / len(players)
        for weight, gradient in zip(same, local, strict=True):
            weight.grad = (mean if is_synchronized else gradient).clone()
    for mine, found in zip(players, computed, strict=True):
        torch.nn.utils.clip_grad_norm_(mine.net.parameters(), 0.5)
        mine.apply_gradients(found)
    if is_averaged:
        for same in weights:
            mean = sum(weight.clone() for weight in same) / len(players)
            [weight.copy_(mean) for weight in same]
        for first, *others in zip(*(mine.net.buffers() for mine in players), strict=True):
            [buffer.copy_(first) for buffer in others]


def unit_vectors(world: World) -> float:
    """The longest that any vector of spectral norm is from length 1 after an averaging."""
    gan = _play(Switches(), world, lambda: local_sgd.Strategy(local_sgd.Options(every=2)), 2)
    vectors = [b for net in (gan.g.net, gan.d.net) for n, b in net.named_buffers() if n.endswith((".u", ".v"))]
    return max(float((v.norm() - 1).abs()) for v in vectors)


def recomputed(world: World, name: str) -> tuple[float, float, int]:
    """The largest difference of weights from the same strategy without, and from the start; forwards of D's layer more.

    R1 is among the penalties: what is recomputed is differentiated twice.
    """
    on, calls = Switches(bn=True, micro_batches=2), []

    def play(memory: MemoryOptions):
        placing = {side: strategy(name) for side in (G, D)}
        for of_side in placing.values():
            of_side.memory = memory
        gan = game(on, *(player(side, on, placing[side], world) for side in (G, D)))
        gan.d.net.blocks[0].layer.register_forward_hook(lambda *_: calls.append(1))
        told = stream(on, *world.share(BATCH))
        for _ in range(3):
            synchronous.step(gan, told)
        count = len(calls)
        calls.clear()
        return gan, count

    (ours, often), (plain, once) = play(MemoryOptions(recompute=True)), play(MemoryOptions())
    start = {side: dict(make(side, on)().state_dict()) for side in Side}
    seats = ((ours.g, plain.g), (ours.d, plain.d))
    pairs = [(a.strategy.weights(a.net), b.strategy.weights(b.net), start[a.side]) for a, b in seats]
    return max(distance(a, b) for a, b, _ in pairs), min(distance(a, s) for a, _, s in pairs), often - once


def narrow(world: World, name: str) -> float:
    """Reductions in bf16, plain gradient descent: the difference of D's weights from float64 ones, in ways walked."""
    on, policy = Switches(), Policy(kind=torch.optim.SGD, lr=1e-2)

    def play(memory: MemoryOptions):
        seats = []
        for side in (G, D):
            placing = strategy(name)
            placing.memory = memory
            seats.append(Player(side=side, net=placing.prepare(make(side, on), world), strategy=placing, policy=policy))
        gan = game(on, *seats)
        told = stream(on, *world.share(BATCH))
        for _ in range(3):
            synchronous.step(gan, told)
        weights = gan.d.strategy.weights(gan.d.net)
        return torch.cat([weights[name].flatten() for name, _ in sorted(gan.d.net.named_parameters())])

    low, full = play(MemoryOptions(bf16_reduce=True)), play(MemoryOptions())
    start = torch.cat([p.detach().flatten() for _, p in sorted(make(D, on)().named_parameters())])
    return float((low - full).norm() / (full - start).norm())


class Partial(nn.Module):
    """A generator with weights that no turn ever reaches."""

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
        policy = Policy(kind=torch.optim.AdamW, lr=1e-2, arguments={"weight_decay": 0.1})
        g = Player(side=G, net=kind().prepare(lambda: net, world), strategy=kind(), policy=policy)
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
