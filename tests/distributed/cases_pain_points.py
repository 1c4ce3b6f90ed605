"""Pain points of several ranks: what plain torch does and what ours does, on the same numbers."""

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from paragan.core.dist import ALONE, World
from paragan.core.errors import RankError
from paragan.core.types import Side
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.matrix_gan import BATCH, Switches, game, make, player, stream
from tests.laws.small_gan import distance

CHANNELS = 4


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


class Both(nn.Module):
    """Two networks behind one wrapper; each turn uses what it needs of them."""

    def __init__(self, g: nn.Module, d: nn.Module) -> None:
        super().__init__()
        self.g, self.d = g, d

    def forward(self, z, turn):
        fake = self.g(z)
        return self.d(fake if turn == "g" else fake.detach())


def between(norm: nn.Module) -> nn.Sequential:
    """A norm between two layers; float64."""
    first, _, last = perceptron(5, CHANNELS, 1)
    return nn.Sequential(first, norm, nn.Tanh(), last).double()


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

        mine, policy = kind(), Policy(kind=torch.optim.AdamW, lr=1e-2, arguments={"weight_decay": 0.1}, max_norm=0.5)
        d = Player(side=Side.D, net=mine.prepare(built, of), strategy=mine, policy=policy)
        gan, told = game(on, player(Side.G, on, kind(), of), d), stream(on, *share)
        for _ in range(3):
            synchronous.step(gan, told)
        return {key: value.clone() for key, value in d.strategy.weights(d.net).items()}

    ours = play(lambda: strategy(name), world, world.share(BATCH))
    plain, start = play(none.Strategy, ALONE, (0, BATCH)), dict(make(Side.D, Switches())().state_dict())
    weights = {key for key in start if key.startswith(("embed.", "blocks.0.layer.")) and not key.endswith((".u", ".v"))}
    still = distance({k: ours[k] for k in weights}, {k: start[k] for k in weights})
    return [distance(ours, plain), still, distance(ours, start)]
