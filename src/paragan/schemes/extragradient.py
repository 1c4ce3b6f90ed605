"""Both players look a step ahead, and step from where they were by what they see there (Korpelevich 1976).

With Adam it is ExtraAdam (Gidel et al. 2019, algorithm 4). Two gradients of either player per update, on the same
batch; both look ahead at once, each against the other as it was. With k > 1 the earlier updates of D are plain. Not for
late opponents: there it may diverge where plain steps converge (arXiv 2307.06886)."""

from __future__ import annotations

from collections.abc import Iterator

from paragan.core.errors import ConfigError
from paragan.core.protocols import PlayerSlot
from paragan.core.types import Batch, Report, take_batches
from paragan.game.gan import GAN
from paragan.game.player import Player

NEEDS_PLAYERS = True  # themselves, not seats that play for them


def step(gan: GAN, batches: Iterator[Batch]) -> Report:
    generator, critic = _here(gan.g), _here(gan.d)
    for real in take_batches(batches, critic.updates_per_step - 1):
        critic.update(gan.d_turn(real), against=generator)
    d_turn, g_turn = gan.d_turn(real := next(batches)), gan.g_turn(real)
    d, g = critic.compute_gradients(d_turn, against=generator), generator.compute_gradients(g_turn, against=critic)
    critic.look_ahead(d)
    generator.look_ahead(g)
    d, g = critic.compute_gradients(d_turn, against=generator), generator.compute_gradients(g_turn, against=critic)
    return gan.observe(critic.apply_gradients(d), generator.apply_gradients(g))


def _here(seat: PlayerSlot) -> Player:
    """Against an opponent as it was some updates ago the look ahead diverges where a plain step converges."""
    if not isinstance(seat, Player):
        raise ConfigError(
            f"scheme: extragradient needs both players in one place, found {type(seat).__name__}, whose answers are "
            "late; use optimiser optimistic_adam, or scheme synchronous"
        )
    return seat


def quiesce() -> None:
    """Nothing is under way between two steps."""


def close() -> None:
    """Nothing is open after the last step."""
