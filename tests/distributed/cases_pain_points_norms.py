"""Pain points of norms over ranks and of sharding: what the naive code does and what ours does."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from paragan.core.clock import Clock
from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.engine.consistency import ConsistencyCheck
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.cross_rank import convert
from paragan.layers.spectral_norm import spectral_norm
from paragan.layers.update_once import begin_update
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.distributed.cases_laws import differences, strategy
from tests.distributed.cases_pain_points import gradients, perceptron, rows, said
from tests.distributed.naive_code import Both, SyncNormOfNumbers, SyncNormOnce
from tests.laws.matrix_gan import BATCH, Switches, game, make, player, stream
from tests.laws.small_gan import distance

CHANNELS = 4


def between(norm: nn.Module) -> nn.Sequential:
    """A norm between two layers; float64."""
    first, _, last = perceptron(5, CHANNELS, 1)
    return nn.Sequential(first, norm, nn.Tanh(), last).double()


def whole_batch(world: World, x: torch.Tensor, second: bool) -> dict[str, torch.Tensor]:
    """Gradients of one process with all rows, by plain torch."""
    return _summed(ALONE, between(nn.BatchNorm1d(CHANNELS)), x, second)


def _summed(world: World, net: nn.Module, x: torch.Tensor, second: bool) -> dict[str, torch.Tensor]:
    """Of the sum over ranks of a loss, or of a penalty on its slope."""
    x = x.clone().requires_grad_()
    loss = net(x).sin().square().sum()
    if second:
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        loss = slope.square().sum()
    loss.backward()
    found = {name.replace("gain", "weight"): grad for name, grad in gradients(net).items()}
    return {name: world.sum(grad) for name, grad in found.items() if name.startswith("0")}


def synchronised(world: World, second: bool) -> dict[str, Any]:
    """Largest difference of the first layer's gradients from those of the whole batch, by kind of norm."""
    whole, mine = rows(world, 8)
    expected = whole_batch(world, whole, second)
    ours = between(nn.BatchNorm1d(CHANNELS))
    convert(ours, world, None)
    nets = {
        "local": between(nn.BatchNorm1d(CHANNELS)),
        "of numbers": between(SyncNormOfNumbers(CHANNELS)),
        "once": between(SyncNormOnce(CHANNELS)),
        "ours": ours,
    }
    return {name: distance(_summed(world, net, mine, second), expected) for name, net in nets.items()}


def torchs_own(world: World) -> list[str]:
    """What torch's own says on a CPU, and what ours says of torch's own."""
    net = nn.Sequential(nn.SyncBatchNorm(CHANNELS))
    images = torch.zeros(4, CHANNELS, 2, 2)
    try:
        convert(net, world, None)
    except ConfigError as error:
        return [said(lambda: net(images)), str(error)]
    return [said(lambda: net(images)), ""]


def layouts(world: World) -> float:
    """The largest difference in any gradient between images in channels-last, or strided, and contiguous memory."""
    torch.manual_seed(world.rank)
    x = torch.randn(3, CHANNELS, 4, 6, dtype=torch.float64)
    net = AffineBatchNorm(CHANNELS).double()
    convert(net, world, None)
    strided = torch.stack([x, x], -1)[..., 0]
    assert not strided.is_contiguous()
    found = []
    for like in (x, x.contiguous(memory_format=torch.channels_last), strided, x.transpose(2, 3).contiguous().mT):
        leaf = like.detach().requires_grad_()
        weight = torch.arange(x.numel(), dtype=x.dtype).view(x.shape)
        found.append(torch.autograd.grad((net(leaf).sin() * weight).sum(), [leaf, net.gain, net.bias]))
    return max(float((a - b).abs().max()) for other in found[1:] for a, b in zip(other, found[0], strict=True))


def called_unequally(world: World) -> dict[str, Any]:
    """Rank 1 leaves out the second norm: what rank 0 is told after 2 s, by a naive norm and by ours."""
    patience = dist.new_group(timeout=timedelta(seconds=2))
    x = rows(world, 8, width=CHANNELS)[1]

    def calls(net: nn.Sequential) -> str:
        return said(lambda: net[:1](x) if world.rank == 1 else net(x))

    naive = calls(nn.Sequential(*(SyncNormOfNumbers(CHANNELS, patience) for _ in range(2))).double())
    again = dist.new_group(timeout=timedelta(seconds=2))
    net = nn.Sequential(AffineBatchNorm(CHANNELS), AffineBatchNorm(CHANNELS)).double()
    convert(net, replace(world, group=again), None)
    return {"naive": naive, "ours": calls(net), "unless told": dist.constants.default_pg_timeout.total_seconds()}


def called_in_another_order(world: World) -> dict[str, Any]:
    """Two norms in the order of the rank: what is said by a naive one, and by our comparison of ranks."""
    x = rows(world, 8, width=CHANNELS)[1]
    order = (0, 1) if world.rank == 0 else (1, 0)

    def call(net: nn.Sequential) -> None:
        h = x
        for number in order:
            h = net[number](h).tanh()

    naive = nn.Sequential(*(SyncNormOfNumbers(CHANNELS) for _ in range(2))).double()
    kind = strategy("ddp")
    net = kind.prepare(lambda: nn.Sequential(*(AffineBatchNorm(CHANNELS) for _ in range(2))).double(), world)
    d, agreement = Player(Side.D, net, kind), ConsistencyCheck(world, 1)
    agreement.check(Clock(step=0), {"d": d})
    begin_update(net)
    call(net)
    return {"naive": said(lambda: call(naive)), "ours": said(lambda: agreement.check(Clock(step=1), {"d": d}))}


def two_forwards(world: World) -> dict[str, Any]:
    """D on real and on fake rows, one backward. Running means: distances from one process, and between the ranks."""
    (real, mine), (fake, mine_too) = rows(world, 8), rows(world, 8, seed=3)

    def play(net: nn.Module, x: torch.Tensor, z: torch.Tensor) -> None:
        (net(x).mean() - net(z).mean()).backward()

    whole = between(nn.BatchNorm1d(CHANNELS))
    play(whole, real, fake)

    def told(net: nn.Module) -> list[float]:
        mean = net[1].running_mean
        everyone = torch.tensor(world.gather(mean.tolist()), dtype=mean.dtype)
        return [float((mean - whole[1].running_mean).abs().max()), float((everyone - everyone[0]).abs().max())]

    found = {}
    for name, broadcast in (("default", True), ("folk", False)):
        net = DistributedDataParallel(between(nn.BatchNorm1d(CHANNELS)), **{"broadcast_buffers": broadcast})
        play(net, mine, mine_too)
        found[name] = told(net.module)
    kind = strategy("ddp")
    ours = kind.prepare(lambda: between(nn.BatchNorm1d(CHANNELS)), world)
    play(kind.training_module(ours), mine, mine_too)
    return {**found, "ours": told(ours), "gradients": distance(gradients(ours), gradients(whole))}


def vectors_of_ranks(world: World) -> dict[str, Any]:
    """Rank-keyed seeds: how far apart the ranks' normalised weights are, after some forwards."""

    def apart(normalise: Any) -> float:
        torch.manual_seed(1)
        layer = nn.Linear(6, 6).double()
        torch.manual_seed(world.rank)
        net = nn.Sequential(normalise(layer))
        wrapped = DistributedDataParallel(net, **{"broadcast_buffers": False})
        for _ in range(2):
            begin_update(net)
            wrapped(rows(world, 8, width=6)[1])
        with torch.no_grad():
            everyone = torch.tensor(world.gather(net.eval()[0].weight.flatten().tolist()))
        return float((everyone - everyone[0]).abs().max())

    return {"naive": world.sum(torch.tensor(apart(nn.utils.spectral_norm))).item(), "ours": apart(spectral_norm)}


def flat_parameters(world: World) -> dict[str, Any]:
    """Both networks in one flat parameter, D frozen before and after; a frozen layer under our strategies."""

    def both() -> Both:
        return Both(perceptron(5, 4), perceptron(4, 1))

    before, after = both(), both()
    before.d.requires_grad_(False)
    cpu = torch.device("cpu")
    refused = said(lambda: FullyShardedDataParallel(before, device_id=cpu))
    whole = FullyShardedDataParallel(after, device_id=cpu)
    whole.module.d.requires_grad_(False)  # G's turn: too late, they are one tensor
    whole(rows(world, 8)[1], "g").mean().backward()
    (flat,) = whole.parameters()
    full = torch.cat([torch.tensor(piece) for piece in world.gather(flat.grad.tolist())])
    touched = int((full[sum(p.numel() for p in perceptron(5, 4).parameters()) :] != 0).sum())
    ours = {name: frozen_layer(world, name) for name in ("ddp", "zero1", "zero2", "zero3")}
    return {"refused": refused, "gradients of the frozen": touched, "ours": ours}


def frozen_layer(world: World, name: str) -> list[float]:
    """D with a frozen block and embedding: its distance from one process, how far the frozen and the rest moved."""

    def play(kind: Any, of: World, share: tuple[int, int]):
        on = Switches()

        def built() -> nn.Module:
            net = make(Side.D, on)()
            net.blocks[0].requires_grad_(False)
            net.embed.requires_grad_(False)
            return net

        mine, policy = kind(), Policy(torch.optim.AdamW, 1e-2, {"weight_decay": 0.1}, max_norm=0.5)
        d = Player(Side.D, mine.prepare(built, of), mine, policy)
        gan, told = game(on, player(Side.G, on, kind(), of), d), stream(on, *share)
        for _ in range(3):
            synchronous.step(gan, told)
        return {key: value.clone() for key, value in d.strategy.weights(d.net).items()}

    ours = play(lambda: strategy(name), world, world.share(BATCH))
    plain, start = play(none.Strategy, ALONE, (0, BATCH)), dict(make(Side.D, Switches())().state_dict())
    weights = {key for key in start if key.startswith(("embed.", "blocks.0.layer.")) and not key.endswith((".u", ".v"))}
    still = distance({k: ours[k] for k in weights}, {k: start[k] for k in weights})
    return [distance(ours, plain), still, distance(ours, start)]


def penalised_pieces(world: World) -> dict[str, Any]:
    """R1 through a network cut by plain FSDP2, and ours under each strategy that cuts."""
    net = copy.deepcopy(perceptron(5, 4, 1))
    for layer in (net[0], net[2], net):
        fully_shard(layer)

    def play() -> None:
        x = rows(world, 8)[1].clone().requires_grad_()
        (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        slope.square().sum().backward()

    share = world.share(BATCH)
    on = Switches(sn=False)  # divided weights are copies, which nobody gives back
    ours = [differences(world, (name, name), on, share, "synchronous", {}) for name in ("zero2", "zero3")]
    return {"naive": said(play), "ours": max(ours)}
