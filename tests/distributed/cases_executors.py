"""Compiled networks on several ranks."""

from __future__ import annotations

from unittest.mock import patch

from paragan.core.dist import World
from paragan.core.types import Side
from paragan.game.network import Calling
from paragan.game.player import Player
from paragan.hardware import executors
from paragan.schemes import synchronous
from tests.distributed.cases_laws import alone, strategy
from tests.laws.matrix_gan import BATCH, STEPS, Switches, game, player, stream
from tests.laws.small_gan import distance, play


def compiled(world: World, name: str) -> float:
    """How far G and D, with R1 at every other update, end from one process that runs everything as written."""
    on = Switches()
    with patch.object(executors, "BACKEND", "aot_eager"):
        calling = Calling(compiler=executors.call_compiler("compile", world.device))
        seats = [_again(player(side, on, strategy(name), world), calling) for side in (Side.G, Side.D)]
        play(game(on, *seats), synchronous, stream(on, *world.share(BATCH)), STEPS, world.sum)
    weights = alone(on, "synchronous")[:2]
    return max(distance(seat.strategy.weights(seat.net), one) for seat, one in zip(seats, weights, strict=True))


def _again(seat: Player, calling: Calling) -> Player:
    return Player(seat.side, seat.net, seat.strategy, seat.policy, calling, seat.ema)
