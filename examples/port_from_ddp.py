"""A hand-written DDP loop and its port: the same weights bit for bit, in half the lines.

`by_hand` is the loop of many repositories: DistributedDataParallel around both networks, hinge loss, R1
every few updates, D frozen for G's turn, clipping, an average of G's weights. `ported` keeps the data, the networks and
their DDP wrappers, and uses paragan for the rest. The script runs both on equal data and compares all weights.

    python examples/port_from_ddp.py
    torchrun --nproc-per-node 2 examples/port_from_ddp.py

Every rank prints "equal bit for bit" after a few seconds, and on two ranks both name the same sum of all weights.
"""

import copy
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import paragan as pg
from paragan.game.options import EmaOptions
from paragan.penalties import r1
from paragan.schemes import synchronous

BATCH, LATENT, GAMMA, R1_EVERY, CLIP, HALF_LIFE = 32, 4, 0.5, 4, 5.0, 2000
ADAM = {"lr": 2e-3, "betas": (0.0, 0.99), "fused": True}


def by_hand(g, d, batches, draw):
    average = copy.deepcopy(g).requires_grad_(False)
    g, d = DDP(g), DDP(d)
    opt_g, opt_d = torch.optim.Adam(g.parameters(), **ADAM), torch.optim.Adam(d.parameters(), **ADAM)
    for step, real in enumerate(batches):
        with torch.no_grad():
            fake = g(draw("d", step))
        penalised = step % R1_EVERY == 0
        real = real.detach().requires_grad_(penalised)
        on_real, on_fake = d(torch.cat([real, fake])).chunk(2)  # one forward: DDP reduces once
        loss_d = (1 - on_real).relu().mean() + (1 + on_fake).relu().mean()
        if penalised:
            (slope,) = torch.autograd.grad(on_real.sum(), real, create_graph=True)
            loss_d = loss_d + R1_EVERY * GAMMA / 2 * slope.square().sum(1).mean()
        opt_d.zero_grad()
        loss_d.backward()
        nn.utils.clip_grad_norm_(d.parameters(), CLIP)
        opt_d.step()
        d.requires_grad_(False)
        loss_g = -d(g(draw("g", step))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        nn.utils.clip_grad_norm_(g.parameters(), CLIP)
        opt_g.step()
        d.requires_grad_(True)
        with torch.no_grad():
            for mine, theirs in zip(average.parameters(), g.parameters(), strict=True):
                mine.lerp_(theirs, 1 - 0.5 ** (len(real) * dist.get_world_size() / HALF_LIFE))
    return g.module, d.module, average


def ported(g, d, batches, prior):
    ema = pg.Ema(copy.deepcopy(g), EmaOptions(HALF_LIFE / dist.get_world_size() / 1000))  # counts this rank's images
    policy = pg.Policy(lr=ADAM["lr"], arguments={"betas": ADAM["betas"]}, max_norm=CLIP)
    gan = pg.GAN(
        g=pg.Player(side=pg.Side.G, net=DDP(g), policy=policy, ema=ema),
        d=pg.Player(side=pg.Side.D, net=DDP(d), policy=policy),
        loss=pg.hinge_loss,
        prior=prior,
        d_penalties=(r1.Penalty(r1.Options(weight=GAMMA, interval=R1_EVERY)),),
    )
    for step, real in enumerate(batches):
        rows = pg.Rows(step=step, first=0, count=BATCH, total=BATCH)  # a rank's batch is a whole one
        synchronous.step(gan, iter([pg.Batch(rows, {"image": real})]))
    return g, d, ema.net


def networks():
    torch.manual_seed(0)
    g = nn.Sequential(nn.Linear(LATENT, 64), nn.ReLU(), nn.Linear(64, 2))
    return g, nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1), nn.Flatten(0))


def main(steps=200):
    """Weights of both versions after `steps` steps on this rank's data, by hand first."""
    angles = torch.rand(steps, BATCH, 1, generator=torch.Generator().manual_seed(dist.get_rank())) * 2 * torch.pi
    rings, prior = torch.cat([angles.cos(), angles.sin()], 2), pg.Prior(seed=dist.get_rank(), latent=LATENT)
    draw = lambda turn, step: prior.draw(turn, pg.Rows(step=step, first=0, count=BATCH, total=BATCH))[0]  # noqa: E731
    old = by_hand(*networks(), rings, draw)
    return [[*nn.ModuleList(nets).parameters()] for nets in (old, ported(*networks(), rings, prior))]


if __name__ == "__main__":
    alone = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", timeout=timedelta(seconds=60), **alone)
    old, new = main()
    same, total = all(map(torch.equal, old, new)), sum(weights.double().sum().item() for weights in new)
    print(f"rank {dist.get_rank()}: {'equal bit for bit' if same else 'DIFFERENT'}, all weights sum to {total!r}")
    dist.destroy_process_group()
    raise SystemExit(not same)
