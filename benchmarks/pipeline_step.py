"""Seconds of a training step on two ranks: `pipeline` and `zero3` over `ddp`, interleaved pairs, wall clock.

python -m benchmarks.pipeline_step [pairs]
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any

import torch

from benchmarks.awake_cores import awake_cores
from benchmarks.record import write
from paragan.core import registry, rng
from paragan.core.dist import World
from paragan.core.network_factory import NetworkFactory
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.init import initialise
from paragan.losses import hinge
from paragan.models import sngan
from paragan.schemes import synchronous
from tests.distributed.pool import Pool

BATCH, WIDTH, SHAPE, RANKS = 32, 32, (3, 32, 32), 2
KINDS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "zero3": {},
    # SNGAN's G has batch norm: 4 micro-batches are another algorithm there, as accumulation is
    "pipeline": {"micro_batches": 4},
}


def _game(name: str, world: World):
    module = registry.load_module("parallel", name)

    def seat(side: Side) -> Player:
        kind = sngan.Generator if side is Side.G else sngan.Discriminator
        options = sngan.Options(width=WIDTH, conditional=False)
        make = NetworkFactory(lambda: kind(options, SHAPE, 0), partial(initialise, seed=0, stream=side.value))
        placed = module.Strategy(module.Options(**KINDS[name])) if hasattr(module, "Options") else module.Strategy()
        ema = Ema(placed.prepare_average(make, world), EmaOptions()) if side is Side.G else None
        return Player(side=side, net=placed.prepare(make, world), strategy=placed, policy=Policy(), ema=ema)

    gan = GAN(
        g=seat(Side.G),
        d=seat(Side.D),
        loss=Loss(hinge.d_loss, hinge.g_loss),
        prior=Prior(seed=0, latent=sngan.Options().latent),
    )
    first, rows = world.share(BATCH)
    real = (
        Batch(r := Rows(step=n, first=first, count=rows, total=BATCH), {"image": rng.uniform(0, "x", r, SHAPE)})
        for n in count()
    )
    return partial(synchronous.step, gan, real)


def step_seconds(world: World, pairs: int) -> dict[str, list[float]]:
    """Seconds of a step under each strategy, in turn."""
    steps = {name: _game(name, world) for name in KINDS}
    found: dict[str, list[float]] = {name: [] for name in KINDS}
    for number in range(pairs + 2):
        names = list(KINDS) if number % 2 else list(KINDS)[::-1]
        for name in names:
            world.barrier()
            start = time.perf_counter()
            steps[name]()
            world.barrier()
            found[name].append(time.perf_counter() - start)
    return {name: times[2:] for name, times in found.items()}


def main(pairs: int) -> None:
    torch.set_num_threads(1)
    with closing(Pool(RANKS)) as pool, awake_cores() as cores:
        times = pool.run("benchmarks.pipeline_step:step_seconds", timeout=500, pairs=pairs)[0]
    rows = {}
    draw = random.Random(0)
    for name in ("zero3", "pipeline"):
        ratios = [a / b for a, b in zip(times[name], times["ddp"], strict=True)]
        medians = sorted(statistics.median(draw.choices(ratios, k=pairs)) for _ in range(2000))
        rows[f"{name} / ddp"] = {
            "median": round(statistics.median(ratios), 3),
            "interval": [round(medians[50], 3), round(medians[1949], 3)],
        }
    seconds = {name: round(statistics.median(each), 4) for name, each in times.items()}
    about = {"network": "SNGAN 32x32", "width": WIDTH, "batch": BATCH, "ranks": RANKS, "cores": cores}
    print(rows, seconds)
    write("pipeline-step", {**about, "pairs": pairs, "seconds": seconds, "ratios": rows})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
