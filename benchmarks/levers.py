"""SNGAN at 32 px: bf16 + channels-last + shared fakes against plain fp32. Aim: >= 2.5 x where the CPU has avx512_bf16.

python -m benchmarks.levers [pairs] [batch]
"""

from __future__ import annotations

import sys
from itertools import count
from types import ModuleType

import torch

from benchmarks.pairs import Ratio, compare, keep
from benchmarks.record import machine
from paragan.core import rng
from paragan.core.types import Batch, Rows, Side
from paragan.game.gan import GAN, Loss
from paragan.game.network import Calling
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.init import initialise
from paragan.losses import hinge
from paragan.models import sngan
from paragan.parallel import none
from paragan.schemes import shared_fakes, synchronous

SHAPE, CLASSES = (3, 32, 32), 10


def stepper(calling: Calling, scheme: ModuleType, batch: int):
    """A call that makes one step of the paper's SNGAN."""
    policy = Policy(torch.optim.Adam, 2e-4, {"betas": (0.0, 0.9)})
    seats = []
    for side, kind in ((Side.G, sngan.Generator), (Side.D, sngan.Discriminator)):
        net = kind(sngan.Options(), SHAPE, CLASSES)
        initialise(net, 0, side.value)
        if calling.channels_last:
            net.to(memory_format=torch.channels_last)
        seats.append(Player(side, net, none.Strategy(), policy, calling))
    gan = GAN(*seats, Loss(hinge.d_loss, hinge.g_loss), Prior(0, sngan.Options().latent, CLASSES))
    rows = (Rows(step, 0, batch, batch) for step in count())
    batches = (Batch(r, rng.uniform(1, "x", r, SHAPE) * 2 - 1, rng.integers(1, "y", r, CLASSES)) for r in rows)
    return lambda: scheme.step(gan, batches)


def main(pairs: int = 15, batch: int = 32) -> dict[str, Ratio]:
    if "bf16" not in machine():
        print("not run: this CPU multiplies no bfloat16")
        return {}
    fast = Calling(torch.bfloat16, channels_last=True)
    plain = stepper(Calling(), synchronous, batch)
    results = {
        "fp32 / (bf16 + channels-last + shared fakes)": compare(plain, stepper(fast, shared_fakes, batch), pairs),
        "fp32 / (fp32 + channels-last + shared fakes)": compare(
            plain, stepper(Calling(None, channels_last=True), shared_fakes, batch), pairs
        ),
    }
    keep(
        "levers-sngan32",
        results,
        f"SNGAN 32 px, paper's width, batch {batch}, one D and one G update, fused Adam in both",
    )
    return results


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
