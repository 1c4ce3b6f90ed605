"""Cases of the strategy pipeline: networks of the zoo, mixed strategies, messages, errors."""

import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from paragan.balancers import adaptive_weight
from paragan.core import rng
from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError, RankError
from paragan.core.network_factory import NetworkFactory
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.engine.consistency import ConsistencyCheck
from paragan.extensions.large_models.parallel.pipeline import Options as PipelineOptions, Strategy as PipelineStrategy
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.game.term_checks import begin_balancer
from paragan.layers.init import initialise
from paragan.losses import hinge
from paragan.models import pix2pix
from paragan.parallel import MemoryOptions, Strategy, none
from paragan.parallel.base.row_moves import Messages
from paragan.penalties import l1
from paragan.schemes import synchronous
from tests.distributed.cases_laws import SCHEMES, UNEVEN, alone, strategy
from tests.distributed.deep_network import WIDTH, Deep
from tests.laws import small_gan
from tests.laws.matrix_gan import BATCH, MATRIX, STEPS, game, player, stream
from tests.laws.small_gan import distance

CLASSES, ROWS, SIDE = 3, 8, 16
SHARES = (3, 2, 2, 1)  # of the rows, on four ranks
ZOO = {
    "sngan": {"latent": 6, "width": 4},
    "dcgan": {"latent": 6, "width": 4},
    "biggan": {"latent": 24, "width": 4},
    "stylegan2": {"latent": 6, "style": 6, "width": 4, "mixing": 0.0, "noise": False},
}


def equals_accumulation(
    world: World, numbers: Sequence[int], micro_batches: int, uneven: bool, scheme: str
) -> list[tuple[dict[str, Any], float]]:
    """Differences between micro-batches of a pipeline and those of accumulation in one process, by switches."""
    first = sum(UNEVEN[world.size][: world.rank]) if uneven else 0
    share = (first, UNEVEN[world.size][world.rank]) if uneven else world.share(BATCH)
    found = []
    for on in (replace(MATRIX[number], micro_batches=1) for number in numbers):
        options = {"micro_batches": micro_batches}
        gan = game(on, *(player(side, on, strategy("pipeline", options), world) for side in Side))
        batches = stream(on, *share)
        for _ in range(STEPS):
            SCHEMES[scheme].step(gan, batches).read(world.sum)
        g, d, average, _ = alone(replace(on, micro_batches=micro_batches), scheme)
        nets = ((gan.g, gan.g.net, g), (gan.d, gan.d.net, d), (gan.g, gan.g.ema.net, average))
        found.append((asdict(on), max(distance(seat.strategy.weights(net), plain) for seat, net, plain in nets)))
    return found


OPTIONS = {"pipeline": {"micro_batches": 1}, "tensor": {"rows": 3}}


def mixed(world: World, g: str, d: str, number: int) -> float:
    """The largest difference of players under two strategies from one process, on uneven rows."""
    on = MATRIX[number]
    seats = (
        player(side, on, strategy(name, OPTIONS.get(name)), world) for side, name in zip(Side, (g, d), strict=True)
    )
    gan = game(on, *seats)
    batches = stream(on, sum(UNEVEN[world.size][: world.rank]), UNEVEN[world.size][world.rank])
    for _ in range(STEPS):
        synchronous.step(gan, batches)
    plain = alone(on, "synchronous")
    nets = ((gan.g, gan.g.net), (gan.d, gan.d.net), (gan.g, gan.g.ema.net))
    return max(distance(seat.strategy.weights(net), one) for (seat, net), one in zip(nets, plain, strict=False))


def _networks(model: str) -> tuple[dict[Side, Callable[[], torch.nn.Module]], tuple[int, ...]]:
    """Constructors of G and D, and the shape of a sample."""
    if model == "deep":
        return {Side.G: partial(Deep, WIDTH), Side.D: partial(Deep, 1)}, (WIDTH,)
    module = importlib.import_module(f"paragan.models.{model}")
    shape = (3, SIDE, SIDE)
    kinds = {Side.G: module.Generator, Side.D: module.Discriminator}
    return {side: partial(kind, module.Options(**ZOO[model]), shape, CLASSES) for side, kind in kinds.items()}, shape


def _zoo_game(model: str, world: World, placed: Sequence[Strategy], parts: int, share: tuple[int, int], penalty: str):
    networks, shape = _networks(model)
    seats = []
    for side, one in zip(Side, placed, strict=True):
        make = NetworkFactory(
            lambda kind=networks[side]: kind().double(), partial(initialise, seed=0, stream=side.value)
        )
        adam = {"betas": (0.0, 0.9), "eps": 1e-3}
        policy = Policy(kind=torch.optim.Adam, lr=1e-2, arguments=adam, max_norm=0.5, micro_batches=parts)
        net = one.prepare(make, world)
        ema = Ema(one.prepare_average(make, world), EmaOptions(half_life_kimg=0.02)) if side is Side.G else None
        seats.append(Player(side=side, net=net, strategy=one, policy=policy, ema=ema))
    prior = Prior(seed=5, latent=networks[Side.G]().latent, num_classes=CLASSES, dtype=torch.float64)
    module = importlib.import_module(f"paragan.penalties.{penalty}")
    terms = (module.Penalty(module.Options(weight=0.3)),)
    gan = GAN(g=seats[0], d=seats[1], loss=Loss(hinge.d_loss, hinge.g_loss), prior=prior, d_penalties=terms)
    return gan, _batches(shape, *share)


def _batches(shape: tuple[int, ...], first: int, count: int):
    for step in itertools.count():
        rows = Rows(step=step, first=first, count=count, total=ROWS)
        x = rng.uniform(3, "x", rows, shape).double() * 2 - 1
        yield Batch(rows, {"image": x, "label": rng.integers(3, "y", rows, CLASSES)})


def zoo(
    world: World,
    model: str,
    options: dict[str, Any],
    penalty: str = "r1",
    steps: int = 2,
    recompute: bool = False,
    uneven: bool = False,
) -> float:
    """The largest difference of any weight or average from one process with equal micro-batches."""
    parts = options.get("micro_batches", 4)
    plain, batches = _zoo_game(model, ALONE, (none.Strategy(), none.Strategy()), parts, (0, ROWS), penalty)
    for _ in range(steps):
        synchronous.step(plain, batches)
    memory = MemoryOptions(recompute=recompute)
    placed = [PipelineStrategy(PipelineOptions(**options), memory) for _ in Side]
    share = (sum(SHARES[: world.rank]), SHARES[world.rank]) if uneven else world.share(ROWS)
    gan, batches = _zoo_game(model, world, placed, 1, share, penalty)
    for _ in range(steps):
        synchronous.step(gan, batches)
    nets = ((gan.g, gan.g.net, plain.g.net), (gan.d, gan.d.net, plain.d.net), (gan.g, gan.g.ema.net, plain.g.ema.net))
    return max(distance(seat.strategy.weights(net), dict(one.state_dict())) for seat, net, one in nets)


def differ(world: World, what: str) -> str:
    """What the check of consistency says where the last rank of two pipelines has something else."""
    options = {"stages": 2, "micro_batches": 1}
    gan = game(MATRIX[31], *(player(side, MATRIX[31], strategy("pipeline", options), world) for side in Side))
    check = ConsistencyCheck(world, 1)
    players = {"g": gan.g, "d": gan.d}
    check.check(gan.clock, players)
    gan.clock.step += 1
    if world.rank == world.size - 1:
        with torch.no_grad():
            net = gan.g.net if what == "a weight" else gan.g.ema.net
            next(weight for name, weight in net.named_parameters() if ("blocks" in name) == (what == "a weight")).add_(
                1
            )
    try:
        check.check(gan.clock, players)
    except RankError as error:
        return str(error)
    return "equal"


def u_net(world: World, norm: str, micro_batches: int) -> float:
    """The largest difference of images and gradients of pix2pix's G, whose blocks pass all maps on."""
    options = pix2pix.Options(width=2, norm=norm, dropout=0.0)

    def construct() -> torch.nn.Module:
        return pix2pix.Generator(options, (3, SIDE, SIDE)).double()

    make = NetworkFactory(construct, partial(initialise, seed=0, stream="g"))
    rows = Rows(step=0, first=0, count=ROWS, total=ROWS)
    condition = rng.uniform(3, "condition", rows, (3, SIDE, SIDE)).double()
    plain = make()
    expected = plain(None, None, condition)
    expected.square().sum().backward()
    placed = strategy("pipeline", {"micro_batches": micro_batches})
    net = placed.prepare(make, world)
    first, count = world.share(ROWS)
    images = placed.training_module(net)(None, None, condition[first : first + count])
    images.square().sum().backward()
    grads = placed.finished_gradients(net)
    assert len(grads) < len(list(plain.parameters()))
    found = [distance({"x": images}, {"x": expected[first : first + count]})]
    return max(found + [float((grads[k] - p.grad).abs().max()) for k, p in plain.named_parameters() if k in grads])


def few_rows(world: World, data: str, counts: Sequence[int]) -> float:
    """The largest difference from one process if a micro-batch is empty in one of two pipelines."""
    on = MATRIX[12]
    options = {"stages": 2, "data": data, "micro_batches": 4}
    gans = (
        game(on, *(player(side, on, strategy("pipeline", options), world) for side in Side)),
        game(on, *(player(side, on, none.Strategy(), ALONE) for side in Side)),
    )
    shares = ((sum(counts[: world.rank]), counts[world.rank]), (0, sum(counts)))
    for gan, share in zip(gans, shares, strict=True):
        labelled = small_gan.batches(*share, total=sum(counts))
        batches = (Batch(each.rows, {"image": each.image}) for each in labelled)
        for _ in range(2):
            synchronous.step(gan, batches)
    found, plain = gans
    pairs = ((found.g, plain.g), (found.d, plain.d))
    return max(distance(a.strategy.weights(a.net), dict(b.net.state_dict())) for a, b in pairs)


class Strange(torch.nn.Module):
    """A network of two linear blocks with a fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.blocks = torch.nn.ModuleList([StrangeBlock(fault), StrangeBlock("")])
        if fault == "no weights":
            self.blocks[1] = torch.nn.ReLU()
        self.blocks[1].requires_grad_(fault != "frozen")

    def forward(self, x):
        first = (x, torch.ones(1, 4)) if self.fault == "input without rows" else x
        y = torch.ones(1) if self.fault == "labels of another batch" else None
        return self.blocks[1](self.blocks[0](first, y), y)


class StrangeBlock(torch.nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.fault = fault

    def forward(self, h, y=None):
        h = self.linear(h)
        faults = {"dict": {"h": h}, "none": None, "scalar": (h, h.sum()), "other rows": h[:2]}
        return faults.get(self.fault, h)


def faulty(world: World, fault: str) -> str:
    """What is said of a network that a pipeline cannot run."""
    try:
        net = strategy("pipeline", {"micro_batches": 2}).prepare(lambda: Strange(fault), world)
        net(torch.ones(3 + world.rank, 4))
    except ConfigError as error:
        return str(error)
    return "accepted"


def balancer_layer(world: World) -> str:
    """What is said of a balancer that reads a layer of a pipelined G."""
    on = MATRIX[0]
    seat = player(Side.G, on, strategy("pipeline", {"micro_batches": 1}), world)
    balancer = adaptive_weight.Balancer(adaptive_weight.Options(last_layer="blocks.0.layer"))
    try:
        begin_balancer(balancer, seat, (l1.Penalty(l1.Options()),))
    except ConfigError as error:
        return str(error)
    return "accepted"


def silent(world: World) -> str:
    """What a rank says whose pipeline has a rank that does not answer."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    messages = Messages(replace(world, group=group))
    said = ""
    if world.rank == 0:
        try:
            messages.wait(messages.receive(torch.empty(1), 1))
        except RankError as error:
            said = str(error)
    world.barrier()
    return said


def unscaled(world: World) -> list[float]:
    """Gradients of 1 under strategy tensor, of shards and others, that had been scaled by 2."""
    placed = strategy("tensor", {"rows": 3})
    net = player(Side.D, MATRIX[5], placed, world).net
    for weight in net.parameters():
        weight.grad = torch.ones_like(weight)
    found = placed.finished_gradients(net, torch.tensor(2.0))
    return sorted({float(grad.max()) for grad in found.values()})
