"""Synchronous updates with one generator forward: D's last update trains on G's images.

Saves one forward of G per step, and holds G's graph in memory while D updates (Isola et al. 2017
train pix2pix this way). With k > 1 the earlier updates of D draw other fakes.
"""

from collections.abc import Iterator
from itertools import islice

from paragan.core.capabilities import ALL, Capability
from paragan.core.types import Batch, Report
from paragan.game import scheme
from paragan.game.gan import GAN


class Scheme(scheme.Scheme):
    """Scheme of k updates of D, the last on the fakes of G's turn, then that turn."""

    capabilities = (
        ALL
        - {Capability.EXTRA_PLAYERS, Capability.LAYER_GRADIENTS}
        - {Capability.RANDOM_OPPONENTS, Capability.RECORDED}
    )
    shares_fakes = True

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        for real in islice(batches, gan.d.updates_per_step - 1):
            gan.d.update(gan.d_turn(real), against=gan.g)
        real = next(batches)
        g_turn = gan.g_turn(real)
        fakes = gan.g.generate_fakes(g_turn)
        detached = tuple(images.detach() for images in fakes)
        d = gan.d.update(gan.d_turn(real).with_inputs_of(g_turn, detached), against=gan.g)
        g = gan.g.update(g_turn.with_fakes(fakes), against=gan.d)
        return gan.observe(d, g)
