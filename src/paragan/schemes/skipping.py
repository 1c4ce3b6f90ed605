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
    """Frequency of D's updates.

    A run's kimg counts the images that D trains on. G trains on `every` times as many: half-lives of its average, and
    times at which weights change (adversarial.start_kimg), count these.
    """

    every: Count = 2
    """Update D at every n-th step; 1 is `synchronous`."""


class Scheme(scheme.Scheme):
    """Scheme of one update of G per step, and D's k updates in every n-th step."""

    capabilities = ALL - {Capability.EXTRA_PLAYERS}

    def __init__(self, options: Options = Options()) -> None:
        self.options = options

    def start_note(self, num_ranks: int) -> str | None:
        if (every := self.options.every) == 1:
            return None
        return (
            f"scheme    D trains at one of {every} steps, and kimg counts its images; G's average, and weights that "
            f"change (adversarial.start_kimg), count those of all steps, {every} times as many"
        )

    def updates(self, side: Side, step: int) -> bool:
        return side is Side.G or (step - 1) % self.options.every == 0

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        reals = list(islice(batches, gan.d.updates_per_step))  # read in every step, so that G's batch is another one
        if not self.updates(Side.D, gan.clock.step + 1):
            # 0 images: the clock counts those that D has trained on
            return gan.report(0, {Side.G: gan.g.update(gan.g_turn(reals[-1]), against=gan.d)})
        for real in reals:
            d = gan.d.update(gan.d_turn(real), against=gan.g)
        return gan.observe(d, gan.g.update(gan.g_turn(reals[-1]), against=gan.d))
