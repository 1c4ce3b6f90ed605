"""Players of which only adapters and some parameters train, on ranks."""

import shutil
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import paragan as pg
from paragan.adapters import loha, lora
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.dist import ALONE, World
from paragan.core.network_factory import NetworkFactory
from paragan.engine.telemetry import singular_values
from paragan.game.ema import Ema
from paragan.game.options import EmaOptions
from paragan.game.state import base_sha256, restore, state_of
from paragan.game.trained_part import add_adapters, fixed_names, select_trained
from paragan.layers.init import initialise
from paragan.parallel import MemoryOptions, none
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.small_gan import batches, distance

BATCH, STEPS, LATENT = 6, 3, 5


class Generator(nn.Module):
    weight_init = "orthogonal"
    latent = LATENT

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [nn.Linear(LATENT, 64), nn.ConvTranspose2d(4, 6, 2, 2), nn.Conv2d(6, 1, 3, padding=1)]
        )

    def forward(self, z, y=None):
        h = self.blocks[0](z).tanh().unflatten(1, (4, 4, 4))
        return self.blocks[2](self.blocks[1](h).tanh()).tanh()


class Discriminator(nn.Module):
    weight_init = "orthogonal"

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Conv2d(1, 6, 3, 2, 1), nn.Conv2d(6, 7, 3, 2, 1)])
        self.norm = pg.BatchNorm(7)
        self.head = nn.Linear(28, 1)

    def forward(self, x, y=None):
        h = self.norm(self.blocks[1](self.blocks[0](x).tanh())).tanh()
        return self.head(h.flatten(1)).squeeze(1)


def with_adapters(side: pg.Side) -> nn.Module:
    """LoRA in all of G, LoHa and a trained head in D."""
    if side is pg.Side.G:
        net = Generator().double()
        add_adapters(net, partial(lora.Adapter, options=lora.Options(rank=2)))
        select_trained(net)
        return net
    net = Discriminator().double()
    add_adapters(net, partial(loha.Adapter, options=loha.Options(rank=2, alpha=1.0)), ["blocks.*.weight"], "d")
    select_trained(net, ["head.*", "blocks.0.bias"], ["head.bias"], "d")
    return net


def make(side: pg.Side) -> NetworkFactory:
    return NetworkFactory(lambda: with_adapters(side), partial(initialise, seed=0, stream=side.value))


def game(placing, world: World, parts: int = 1) -> pg.GAN:
    policy = pg.Policy(
        kind=torch.optim.AdamW, lr=1e-2, arguments={"weight_decay": 0.1}, max_norm=0.5, micro_batches=parts
    )
    players = []
    for side in pg.Side:
        mine = placing()
        ema = Ema(mine.prepare_average(make(side), world), EmaOptions(half_life_kimg=0.01))
        net = mine.prepare(make(side), world)
        players.append(pg.Player(side=side, net=net, strategy=mine, policy=policy, ema=ema, base=fixed_names(net)))
    loss = pg.Loss(lambda real, fake: fake.tanh() - real.tanh(), lambda fake, real: -fake.tanh())
    penalty = pg.R1Penalty(pg.R1Options(weight=0.1))
    return pg.GAN(
        g=players[0],
        d=players[1],
        loss=loss,
        prior=pg.Prior(seed=0, latent=LATENT, dtype=torch.float64),
        d_penalties=(penalty,),
    )


def play(gan: pg.GAN, share: tuple[int, int], steps: int = STEPS) -> dict[str, Tensor]:
    """Train some steps; return weights, buffers and averages of both players."""
    stream = batches(*share, total=BATCH)
    for _ in range(steps):
        batch = next(stream)
        synchronous.step(gan, iter([pg.Batch(batch.rows, {"image": batch.image})]))
    return tensors(gan)


def tensors(gan: pg.GAN) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for player in (gan.g, gan.d):
        for prefix, net in (("net/", player.net), ("ema/", player.ema.net)):
            weights = player.strategy.weights(net)
            found |= {f"{player.side.value}/{prefix}{name}": value.clone() for name, value in weights.items()}
    return found


def against_one_process(world: World, name: str, parts: int = 1, recompute: bool = False) -> dict[str, object]:
    """The difference from one process, how far the base and the rest moved, what was sent, saved and shared."""
    expected = play(game(none.Strategy, ALONE, parts), (0, BATCH))
    memory = MemoryOptions(recompute=recompute)

    def placing():
        made = strategy(name)
        made.memory = memory
        return made

    gan = game(placing, world, parts)
    start = tensors(gan)
    before = world.sent["parameters"]
    for_all = play(gan, world.share(BATCH))
    plain = game(none.Strategy, ALONE, parts)
    play(plain, (0, BATCH))
    pairs = [(gan.g, plain.g), (gan.d, plain.d)]
    base = {f"{p.side.value}/{of}/{k}" for p, _ in pairs for of in ("net", "ema") for k in p.base}
    moved = {key: distance({key: for_all[key]}, {key: start[key]}) for key in start}
    saved = {f"{p.side.value}/{key}" for p, _ in pairs for key in state_of(p)[0].tensors}
    trained = [weight for p, _ in pairs for weight in p.net.parameters() if weight.requires_grad]
    return {
        "difference": distance(for_all, expected),
        "spectra": max(distance(singular_values(p.net), singular_values(one.net)) for p, one in pairs),
        "base moved": max(moved[key] for key in base),
        "least moved": min(moved[key] for key in moved if ".norm." not in key and key not in base),
        "sent": world.sent["parameters"] - before,
        "shapes": [list(weight.shape) for weight in trained],
        "base saved": sorted(base & saved),
        "sha256": [base_sha256(p) == base_sha256(one) != "" for p, one in pairs],
        "shared": [_shares_base(p) for p, _ in pairs],
    }


def _shares_base(player: pg.Player) -> bool:
    average = dict(player.ema.net.named_parameters())
    weights = dict(player.net.named_parameters())
    return all(average[name].data_ptr() == weights[name].data_ptr() for name in player.base)


def resumed(world: World, name: str, other: str, folder: str) -> float:
    """The difference of stopping after two steps, and resuming under another strategy, from not stopping."""
    share = world.share(BATCH)
    expected = play(game(lambda: strategy(other), world), share)
    first = game(lambda: strategy(name), world)
    play(first, share, 2)
    writer = CheckpointWriter(folder=Path(folder), world=world)
    states = {player.side.value: state_of(player) for player in (first.g, first.d)}
    writer.save(2, {key: pieces for key, (pieces, _) in states.items()}, {})
    second = game(lambda: strategy(other), world)
    checkpoint = writer.newest()
    for player in (second.g, second.d):
        restore(player, checkpoint.groups[player.side.value], states[player.side.value][1])
    second.clock.step = 2
    stream = batches(*share, total=BATCH)
    for _ in range(2):
        next(stream)
    batch = next(stream)
    synchronous.step(second, iter([pg.Batch(batch.rows, {"image": batch.image})]))
    found = distance(tensors(second), expected)
    world.barrier()
    if world.is_main:
        shutil.rmtree(folder)
    return found
