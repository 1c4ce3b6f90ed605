"""Extragradient (Korpelevich 1976): both players update by the gradients at a look-ahead point.

With Adam it is ExtraAdam (Gidel et al. 2019, algorithm 4). Two gradients of each player per update, on the same
batch; both look ahead at once, each against the other's weights before. With k > 1 the earlier updates of D are
plain. Spectral norm's vectors and batch norm's statistics follow the forward of the look-ahead, too: they move twice
in an update. An update of which one gradient is not finite is skipped as a whole; only the optimiser's moments keep
a finite look-ahead. It may diverge against delayed opponents where plain steps converge (arXiv 2307.06886).
"""

from collections.abc import Iterator
from itertools import islice

from paragan.core.capabilities import ALL, Capability
from paragan.core.errors import ConfigError
from paragan.core.protocols import PlayerSlot
from paragan.core.types import Batch, Report
from paragan.game import scheme
from paragan.game.gan import GAN
from paragan.game.player import Player


class Scheme(scheme.Scheme):
    """Look-ahead step of both players, then the update from the weights before it."""

    capabilities = ALL - {Capability.EXTRA_PLAYERS, Capability.PAUSES, Capability.RANDOM_OPPONENTS, Capability.STACKED}

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        g_player = _local_player(gan.g)
        d_player = _local_player(gan.d)
        for real in islice(batches, d_player.updates_per_step - 1):
            d_player.update(gan.d_turn(real), against=g_player)
        real = next(batches)
        d_turn = gan.d_turn(real)
        g_turn = gan.g_turn(real)
        if not (d_turn.is_due and g_turn.is_due):  # a player alone has no game to look ahead in
            d_update = d_player.update(d_turn, against=g_player)
            return gan.observe(d_update, g_player.update(g_turn, against=d_player))
        d_gradients = d_player.compute_gradients(d_turn, against=g_player)
        g_gradients = g_player.compute_gradients(g_turn, against=d_player)
        d_player.look_ahead(d_gradients)
        g_player.look_ahead(g_gradients)
        d_gradients = d_player.compute_gradients(d_turn, against=g_player)
        g_gradients = g_player.compute_gradients(g_turn, against=d_player)
        d_player.apply_gradients(d_gradients)
        g_player.apply_gradients(g_gradients)
        return gan.observe(d_player.summarize(d_gradients), g_player.summarize(g_gradients))


def _local_player(slot: PlayerSlot) -> Player:
    """Return the slot's player; raises `ConfigError` for a remote one (look-ahead diverges)."""
    if not isinstance(slot, Player):
        raise ConfigError(
            "scheme extragradient needs both players in one process, but one is a "
            f"{type(slot).__name__}; use optimizer optimistic_adam, or scheme synchronous"
        )
    return slot
