"""What fewer and smaller exchanges are worth where the network is slow: two hosts joined by 100 Mbit/s.

Two network namespaces with a rank each, the cable shaped by a token bucket. A DCGAN pair at 32x32 under `ddp`, under
`ddp` with bf16 reductions and under `local_sgd` every 2 updates takes steps in turn; seconds by the clock, since what
is measured is waiting. Needs root and `ip`; else it prints why it did not run.

python -m benchmarks.two_hosts [pairs]
"""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from itertools import count
from pathlib import Path

import torch

from benchmarks.paired_timing import compare, keep
from paragan.core import rng
from paragan.core.dist import World
from paragan.core.network_factory import NetworkFactory
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.distributed.launch.join import destroy_groups, join
from paragan.distributed.launch.rank_env import from_environment
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.hardware import device as devices
from paragan.layers.init import initialise
from paragan.losses import hinge
from paragan.models import dcgan
from paragan.parallel import MemoryOptions, ddp, local_sgd
from paragan.schemes import synchronous
from tests.shaped_hosts import lacking, run_torchrun, shaped_hosts

RATE, BATCH, STEPS, WIDTH, SHAPE = "100mbit", 8, 2, 32, (3, 32, 32)


def steps(strategy, world: World):
    """A call that makes STEPS steps: one averaging of `local_sgd`."""

    def seat(side: Side) -> Player:
        kind = dcgan.Generator if side is Side.G else dcgan.Discriminator
        options = dcgan.Options(width=WIDTH)
        make = NetworkFactory(lambda: kind(options, SHAPE, 0), partial(initialise, seed=0, stream=side.value))
        return Player(side=side, net=strategy.prepare(make, world), strategy=strategy, policy=Policy())

    gan = GAN(
        g=seat(Side.G),
        d=seat(Side.D),
        loss=Loss(hinge.d_loss, hinge.g_loss),
        prior=Prior(seed=0, latent=dcgan.Options().latent),
    )
    real = (
        Batch(
            r := Rows(step=n, first=world.share(BATCH)[0], count=world.share(BATCH)[1], total=BATCH),
            {"image": rng.uniform(0, "x", r, SHAPE)},
        )
        for n in count()
    )
    weights = sum(p.numel() for p in (*gan.g.net.parameters(), *gan.d.net.parameters()))
    return weights, lambda: [synchronous.step(gan, real) for _ in range(STEPS)]


def on_a_host(pairs: int) -> None:
    torch.set_num_threads(1)
    world = join(from_environment(), devices.select_device(), 120.0)
    weights, plain = steps(ddp.Strategy(), world)
    _, narrow = steps(ddp.Strategy(memory=MemoryOptions(bf16_reduce=True)), world)
    _, every_other = steps(local_sgd.Strategy(local_sgd.Options(every=2)), world)
    _, both = steps(local_sgd.Strategy(local_sgd.Options(every=2), MemoryOptions(bf16_reduce=True)), world)
    timed = {
        "bf16 reductions / ddp": compare(narrow, plain, pairs, clock=time.monotonic),
        "averaged every 2 / ddp": compare(every_other, plain, pairs, clock=time.monotonic),
        "both / ddp": compare(both, plain, pairs, clock=time.monotonic),
    }
    if world.is_main:
        keep("two-hosts", timed, f"{weights:,} weights, batch {BATCH} over two hosts at {RATE}, wall seconds", "wall")
    destroy_groups(world)


def main(pairs: int) -> None:
    if reason := lacking():
        print(f"not run: {reason}")
        return
    with tempfile.TemporaryDirectory() as folder, shaped_hosts(2, None) as hosts:
        for host in hosts:
            host.shape(RATE, burst="128kb", latency="100ms")
        words = ["-m", "benchmarks.two_hosts", str(pairs), "--on-a-host"]
        print(run_torchrun(hosts, words, Path(folder), 1500)[0])


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    (on_a_host if "--on-a-host" in sys.argv else main)(number)
