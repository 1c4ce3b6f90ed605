"""What penalties and augmentations remember from step to step: part of the state of the player whose turn it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from paragan.core.errors import ConfigError
from paragan.core.protocols import state_tensors
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.game.player import Player


def remember(game: GAN, device: torch.device | None = None) -> None:
    """Tie what is remembered to the players, whose state is saved and restored; once, before the first step."""
    for seat in (game.g, game.d):
        if isinstance(seat, Player):
            who = _of(game, seat.side)
            for one in who if device is not None else ():
                held = getattr(one, "state", {})
                held |= {name: value.to(device) for name, value in held.items()}
            seat.state = state_tensors(*who)


def refuse_remembering(game: GAN, where: str, all_of_it: bool = True) -> None:
    """`ConfigError` where this would not travel. all_of_it: nor what a player's own ranks alone have to know."""
    penalties = (*game.g_penalties, *game.d_penalties) if all_of_it else ()
    who: tuple[Any, ...] = (*penalties, game.augment)
    for one in who:
        if getattr(one, "state", None):
            raise ConfigError(
                f"{where}: does not carry what {one.name} remembers from step to step; leave {one.name} out, or train "
                "one pair with scheme synchronous or shared_fakes"
            )


def _of(game: GAN, side: Side) -> Iterable[Any]:
    return game.g_penalties if side is Side.G else (*game.d_penalties, game.augment)
