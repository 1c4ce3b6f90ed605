"""Updates of D on every n-th batch only, for a strong D (Lipizzaner's "skip D", n = 2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from paragan.core.capabilities import ALL, Capability
from paragan.core.option_types import Count
from paragan.core.types import Batch, Report, Side
from paragan.game import scheme
from paragan.game.gan import GAN


@dataclass(frozen=True)
class Options:
    """Frequency of D's updates."""

    every: Count = 2
    """Update D at every n-th step; 1 is `synchronous`."""


class Scheme(scheme.Scheme):
    """Scheme of one update of G per step, and D's k updates in every n-th step."""

    capabilities = ALL - {Capability.EXTRA_PLAYERS}

    def __init__(self, options: Options = Options()) -> None:
        self.options = options

    def updates(self, side: Side, step: int) -> bool:
        return side is Side.G or (step - 1) % self.options.every == 0

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        is_due = gan.clock.step % self.options.every == 0
        for real in islice(batches, gan.d.updates_per_step):
            if is_due:
                d = gan.d.update(gan.d_turn(real), against=gan.g)
        g = gan.g.update(gan.g_turn(real), against=gan.d)
        return gan.observe(d, g) if is_due else gan.report(0, {Side.G: g})
