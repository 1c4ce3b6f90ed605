"""Cost of a strategy where there is nothing to share: one rank under `ddp` (and the others) against `none`.

Aim: ddp <= 1.03 x CPU time. python -m benchmarks.ranks_overhead [pairs]
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import count

import torch

from benchmarks.paired_timing import compare, keep
from paragan.core import rng
from paragan.core.dist import World
from paragan.core.network_factory import NetworkFactory
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.distributed.launch.join import destroy_groups, join
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.network import Calling
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.init import initialise
from paragan.losses import hinge
from paragan.models import sngan
from paragan.parallel import ddp, none, zero1, zero3
from paragan.schemes import synchronous

BATCH, STEPS, WIDTH, SHAPE = 16, 4, 32, (3, 32, 32)


def steps(strategy, world: World):
    """A call that makes STEPS steps."""

    def seat(side: Side) -> Player:
        kind = sngan.Generator if side is Side.G else sngan.Discriminator
        options = sngan.Options(width=WIDTH, conditional=False)
        make = NetworkFactory(lambda: _layout(kind(options, SHAPE, 0)), partial(initialise, seed=0, stream=side.value))
        ema = Ema(strategy.prepare_average(make, world), EmaOptions()) if side is Side.G else None
        net = strategy.prepare(make, world)
        return Player(
            side=side, net=net, strategy=strategy, policy=Policy(), calling=Calling(channels_last=True), ema=ema
        )

    gan = GAN(
        g=seat(Side.G),
        d=seat(Side.D),
        loss=Loss(hinge.d_loss, hinge.g_loss),
        prior=Prior(seed=0, latent=sngan.Options().latent),
    )
    real = (
        Batch(r := Rows(step=n, first=0, count=BATCH, total=BATCH), {"image": rng.uniform(0, "x", r, SHAPE)})
        for n in count()
    )
    return lambda: [synchronous.step(gan, real) for _ in range(STEPS)]


def _layout(net: torch.nn.Module) -> torch.nn.Module:
    return net.to(memory_format=torch.channels_last)


def main(pairs: int) -> None:
    torch.set_num_threads(1)
    world = join(None, torch.device("cpu"), 60.0, alone_group=True)
    plain = steps(none.Strategy(), world)
    kinds = {"ddp": ddp, "zero1": zero1, "zero3": zero3}
    timed = {f"{n} / none": compare(steps(k.Strategy(), world), plain, pairs) for n, k in kinds.items()}
    keep("ranks-overhead", timed, f"one rank; SNGAN 32x32, width {WIDTH}, batch {BATCH}")
    destroy_groups(world)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 21)
