"""A scheme outside the package: D is updated at every n-th step. What others need to know of it is here, too."""

from dataclasses import dataclass
from itertools import islice

from paragan.core.capabilities import ALL, Capability
from paragan.core.types import Side
from paragan.game import scheme


@dataclass(frozen=True)
class Options:
    every: int = 3


class Scheme(scheme.Scheme):
    capabilities = ALL - {Capability.GRID, Capability.EXTRA_PLAYERS}
    has_threads = True
    exact_scheme = "extragradient"

    def __init__(self, options=Options()):
        self.options = options

    def updates(self, side, step):
        return side is Side.G or (step - 1) % self.options.every == 0

    def plan_settings(self, num_ranks):
        return {f"D every {num_ranks} steps": {"every": num_ranks}}

    def start_note(self, num_ranks):
        return f"pauses    D trains at every step of {self.options.every}"

    def step(self, gan, batches):
        updates = {}
        is_due = self.updates(Side.D, gan.clock.step + 1)
        for real in islice(batches, gan.d.updates_per_step):
            if is_due:
                updates[Side.D] = gan.d.update(gan.d_turn(real), against=gan.g)
        updates[Side.G] = gan.g.update(gan.g_turn(real), against=gan.d)
        return gan.report(real.rows.total if is_due else 0, updates)
