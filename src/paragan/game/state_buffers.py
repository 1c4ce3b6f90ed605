"""Tensors of penalties, augmentations and balancers from step to step, saved with their player."""

from __future__ import annotations

from collections.abc import Sequence

from paragan.core.balancer import Balancer
from paragan.core.errors import ConfigError
from paragan.core.protocols import Adaptive, Penalty, adaptive, state_tensors
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.game.player import Player


def attach_state(game: GAN) -> None:
    """Attach this state to the players, on their devices, before the first step."""
    for player in game.slots.values():
        if isinstance(player, Player):
            device = player.strategy.device(player.net)
            owners = _owners(game, player.side)
            for owner in owners:
                owner.state.update({name: value.to(device) for name, value in owner.state.items()})
            player.state = state_tensors(*owners)


def refuse_state(game: GAN, where: str, all_penalties: bool = True) -> None:
    """Raise `ConfigError` if the game has state that `where`, a scheme or grid, cannot move.

    A balancer is refused, too. all_penalties: False checks only these and the augmentation.
    """
    if game.balancer is not None:
        raise ConfigError(
            f"{where} does not support the balancer {game.balancer.name}; leave it out, or train one "
            "pair with scheme synchronous, shared_fakes or skipping"
        )
    owners = [*(_owners(game, Side.G) if all_penalties else ()), *_augmentation(game)]
    owners += game.d_penalties if all_penalties else ()
    for owner in owners:
        if owner.state:
            raise ConfigError(
                f"{where} does not support {owner.name}, which has state from step to step; leave "
                f"{owner.name} out, or train one pair with scheme synchronous or shared_fakes"
            )


def _owners(game: GAN, side: Side) -> list[Penalty | Adaptive | Balancer]:
    """Return the penalties of one side, with D's the augmentation of its inputs, with G's the balancer."""
    balancers = [] if game.balancer is None else [game.balancer]
    more: dict[Side, Sequence[Adaptive | Balancer]] = {Side.G: balancers, Side.D: _augmentation(game)}
    return [*game.penalties[side], *more.get(side, ())]


def _augmentation(game: GAN) -> list[Adaptive]:
    augment = adaptive(game.augment)
    return [] if augment is None else [augment]
