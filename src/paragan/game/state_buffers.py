"""Tensors of penalties, augmentations and balancers from step to step, saved with their player."""

from __future__ import annotations

from collections.abc import Sequence

from paragan.core.balancer import Balancer
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


def _owners(game: GAN, side: Side) -> list[Penalty | Adaptive | Balancer]:
    """Return the penalties of one side, with D's the augmentation of its inputs, with G's the balancer."""
    balancers = [] if game.balancer is None else [game.balancer]
    more: dict[Side, Sequence[Adaptive | Balancer]] = {Side.G: balancers, Side.D: _augmentation(game)}
    return [*game.penalties[side], *more.get(side, ())]


def _augmentation(game: GAN) -> list[Adaptive]:
    augment = adaptive(game.augment)
    return [] if augment is None else [augment]
