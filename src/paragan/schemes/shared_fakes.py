"""Synchronous, with one generation for both turns: D's last update sees the images that G is then judged by.

Saves one forward of G per step, at the price of keeping G's graph while D updates (Isola et al. 2017 train pix2pix
so). With k > 1 the earlier updates of D draw fakes of their own."""

from __future__ import annotations

from collections.abc import Iterator

from paragan.core.types import Batch, Report, take_batches
from paragan.game.gan import GAN

SHARES_FAKES = True  # with their graph: a turn of G begins in D's


def step(gan: GAN, batches: Iterator[Batch]) -> Report:
    for real in take_batches(batches, gan.d.updates_per_step - 1):
        gan.d.update(gan.d_turn(real), against=gan.g)
    real = next(batches)
    turn, made_by = gan.g_turn(real), gan.g.version
    fakes = gan.g.generate_fakes(turn)
    d = gan.d.update(gan.d_turn(real).with_inputs_of(turn, tuple(f.detach() for f in fakes), made_by), against=gan.g)
    g = gan.g.update(turn.with_fakes(fakes, made_by), against=gan.d)
    return gan.observe(d, g)


def quiesce() -> None:
    """Nothing is under way between two steps."""


def close() -> None:
    """Nothing is open after the last step."""
