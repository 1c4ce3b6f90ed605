"""D learns on every n-th batch only, G on each: cheaper where D is the stronger (Lipizzaner's "skip D", n = 2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paragan.core.option_types import Count
from paragan.core.types import Batch, Report, Side, take_batches
from paragan.game.gan import GAN


@dataclass(frozen=True)
class Options:
    """How often G is updated."""

    every: Count = 2
    """Update G at every n-th step only; 1 is `synchronous`."""


class Scheme:
    def __init__(self, options: Options = Options()) -> None:
        self.options = options

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        due = gan.clock.step % self.options.every == 0
        for real in take_batches(batches, gan.d.updates_per_step):
            if due:
                d = gan.d.update(gan.d_turn(real), against=gan.g)
        g = gan.g.update(gan.g_turn(real), against=gan.d)
        return gan.observe(d, g) if due else gan.report(0, {Side.G: g})

    def quiesce(self) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """Nothing was opened."""
