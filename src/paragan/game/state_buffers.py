"""Tensors of penalties, augmentations and balancers from step to step, saved with their player."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paragan.core.balancer import Balancer
from paragan.core.protocols import Adaptive, Augment, Penalty, PlayerSlot, adaptive, state_tensors
from paragan.core.types import Side
from paragan.game.player import Player


def attach_state(
    slots: Mapping[Side, PlayerSlot],
    penalties: Mapping[Side, Sequence[Penalty]],
    augment: Augment | None,
    balancer: Balancer | None,
) -> None:
    """Attach this state to the players, on their devices, before the first step.

    The augmentation of D's inputs is saved with D, the balancer with G.
    """
    changing = adaptive(augment)
    more: dict[Side, Sequence[Adaptive | Balancer]] = {
        Side.G: [] if balancer is None else [balancer],
        Side.D: [] if changing is None else [changing],
    }
    for side, player in slots.items():
        if isinstance(player, Player):
            device = player.strategy.device(player.net)
            owners = [*penalties[side], *more.get(side, ())]
            for owner in owners:
                owner.state.update({name: value.to(device) for name, value in owner.state.items()})
            player.state = state_tensors(*owners)
