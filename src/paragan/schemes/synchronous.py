"""GAN algorithm (Goodfellow et al. 2014, algorithm 1): k updates of D, then one of G."""

from collections.abc import Iterator
from itertools import islice

from paragan.core.capabilities import ALL
from paragan.core.types import Batch, Report, Side
from paragan.game.gan import GAN

capabilities = ALL


def step(gan: GAN, batches: Iterator[Batch]) -> Report:
    """Update D, and extra players, `updates_per_step` times, on one batch each, then G once."""
    updates = {}
    for number, real in enumerate(islice(batches, gan.batches_per_step)):
        for side, player in gan.critics_of_batch(number).items():
            updates[side] = player.update(gan.turn(side, real), against=gan.g)  # fakes of G, without its graph
    updates[Side.G] = gan.g.update(gan.g_turn(real), against=gan.d)  # the last batch again
    return gan.report(real.rows.total, updates)
