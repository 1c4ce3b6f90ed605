"""GAN algorithm (Goodfellow et al. 2014, algorithm 1): k updates of D, then one of G."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from paragan.core.types import Batch, Report
from paragan.game.gan import GAN


def step(gan: GAN, batches: Iterator[Batch]) -> Report:
    """Update D `updates_per_step` times, on one batch each, then G once."""
    for real in islice(batches, gan.d.updates_per_step):
        d = gan.d.update(gan.d_turn(real), against=gan.g)  # fakes of G, without its graph
    g = gan.g.update(gan.g_turn(real), against=gan.d)  # the last batch again
    return gan.observe(d, g)
