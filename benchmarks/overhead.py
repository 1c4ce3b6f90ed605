"""Cost of the library.

Its step against the one-file example's at equal networks, settings and draws. Aim: <= 1.05 x CPU time.

python -m benchmarks.overhead [pairs]
"""

from __future__ import annotations

import sys
from itertools import count

import torch

from benchmarks.paired_timing import Ratio, compare, keep
from examples import train_in_one_file as naive
from paragan.core import rng
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.spectral_norm import spectral_norm
from paragan.losses import hinge
from paragan.parallel import none
from paragan.penalties import r1
from paragan.schemes import synchronous

STEPS = 8  # per timed call: two R1 periods


def library(width: int, prior: Prior):
    """A call that makes STEPS steps of the library."""
    policy = Policy(kind=torch.optim.Adam, lr=naive.ADAM["lr"], arguments={"betas": naive.ADAM["betas"]})
    g, average, d = (kind(spectral_norm, width) for kind in (naive.Generator, naive.Generator, naive.Discriminator))
    ema = Ema(average, EmaOptions(naive.HALF_LIFE_IMAGES / 1000))
    gan = GAN(
        g=Player(side=Side.G, net=g, strategy=none.Strategy(), policy=policy, ema=ema),
        d=Player(side=Side.D, net=d, strategy=none.Strategy(), policy=policy),
        loss=Loss(hinge.d_loss, hinge.g_loss),
        prior=prior,
        d_penalties=(r1.Penalty(r1.Options(weight=naive.R1_WEIGHT, interval=naive.R1_EVERY)),),
    )
    batches = (real(step) for step in count())
    return lambda: [synchronous.step(gan, batches) for _ in range(STEPS)]


def plain(width: int, prior: Prior):
    """A call that makes STEPS steps of the example."""
    g, average, d = (
        kind(naive.naive_spectral_norm, width) for kind in (naive.Generator, naive.Generator, naive.Discriminator)
    )
    adam = [torch.optim.Adam(net.parameters(), **naive.ADAM) for net in (g, d)]
    steps = count()

    def step() -> None:
        number = next(steps)
        batch = real(number)
        naive.train_step(number, g, d, average, *adam, batch.image, batch.label, draw)

    def draw(stream, number):
        return prior.draw(stream, Rows(step=number, first=0, count=naive.BATCH, total=naive.BATCH))

    return lambda: [step() for _ in range(STEPS)]


def real(step: int) -> Batch:
    rows = Rows(step=step, first=0, count=naive.BATCH, total=naive.BATCH)
    x = rng.uniform(1, "x", rows, (1, 8, 8)) * 2 - 1
    return Batch(rows, {"image": x, "label": rng.integers(1, "y", rows, naive.CLASSES)})


def main(pairs: int = 41) -> dict[str, Ratio]:
    prior = Prior(seed=0, latent=naive.LATENT, num_classes=naive.CLASSES)
    results = {f"library / one file, width {w}": compare(library(w, prior), plain(w, prior), pairs) for w in (16, 64)}
    keep(
        "overhead",
        results,
        "one D and one G update, batch 64, 1x8x8, SN, R1 every 4, EMA, fused Adam; 8 steps per call",
    )
    return results


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
