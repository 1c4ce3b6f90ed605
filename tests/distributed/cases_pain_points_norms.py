"""Pain points of norms over ranks and of sharding: what the naive code does and what ours does."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from paragan.core.dist import ALONE, World
from paragan.core.types import Side
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.cross_rank import convert
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.distributed.cases_pain_points import gradients, perceptron, rows, said
from tests.distributed.naive_code import Both
from tests.laws.matrix_gan import BATCH, Switches, game, make, player, stream
from tests.laws.small_gan import distance

CHANNELS = 4


def between(norm: nn.Module) -> nn.Sequential:
    """A norm between two layers; float64."""
    first, _, last = perceptron(5, CHANNELS, 1)
    return nn.Sequential(first, norm, nn.Tanh(), last).double()


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
