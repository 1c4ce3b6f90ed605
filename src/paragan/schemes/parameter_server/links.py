"""Staleness bound of a server and its workers, and the links between them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from paragan.core.errors import RankError
from paragan.core.roles import Roles
from paragan.core.traffic import Collective
from paragan.core.types import Side
from paragan.distributed.transports.gloo_link import GlooReceiver, GlooSender, connect_pair
from paragan.distributed.transports.link import Message
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.schemes.parameter_server.messages import max_message_bytes

_SESSION_NUMBERS = itertools.count()  # equal on all ranks, which open their sessions in one order


@dataclass(frozen=True)
class StalenessBound:
    """Bound on the steps between workers. staleness: S, in steps. per_step: turns of each player.

    A worker that has made n turns of a side computes with weights that contain all turns that every
    worker has made before n - S per_step, so no worker is further ahead of another.
    """

    staleness: int
    per_step: Mapping[Side, int]

    @classmethod
    def of(cls, gan: GAN, staleness: int) -> StalenessBound:
        """Return the bound of a game."""
        return cls(staleness, {Side.G: 1, Side.D: gan.d.updates_per_step})

    @property
    def turns(self) -> list[Side]:
        """Turns of a step, in order."""
        return [Side.D] * self.per_step[Side.D] + [Side.G]

    @property
    def max_in_flight(self) -> int:
        """Messages to or from a worker that may be unread or unanswered."""
        return (self.staleness + 1) * len(self.turns) + 2

    def required_turns(self, side: Side, number: int) -> int:
        """Return the turns of all workers that weights must contain after `number` turns."""
        return number - self.staleness * self.per_step[side]

    def to_steps(self, side: Side, turns: int) -> int:
        """Convert turns to steps, rounded up."""
        return -(-turns // self.per_step[side])


def open_links(roles: Roles, gan: GAN, max_in_flight: int) -> list[tuple[GlooSender, GlooReceiver]]:
    """Open this rank's link ends: on the server one pair per worker, on a worker one.

    Collective: every rank must call this.
    """
    number = next(_SESSION_NUMBERS)
    world = roles.world
    count = partial(world.count_bytes, "parameters", collective=Collective.LINK)
    here = int(world.rank > 0)  # this rank in a link of two
    players = [player for player in (gan.g, gan.d) if isinstance(player, Player)]
    max_bytes = max(max_message_bytes(player.net) for player in players)
    ends = []
    for worker in range(1, world.size):
        if world.rank in (0, worker):
            up = connect_pair(world.store, f"server/{number}/{worker}/up", here, roles.timeout_s)
            down = connect_pair(world.store, f"server/{number}/{worker}/down", here, roles.timeout_s)
            sending, receiving = (up, down) if here else (down, up)
            sender = GlooSender(sending, 1 - here, max_in_flight, roles.timeout_s, count)
            receiver = GlooReceiver(receiving, 1 - here, max_bytes, max_in_flight, roles.timeout_s)
            ends.append((sender, receiver))
    return ends


def receive_from(peer: str, receiver: GlooReceiver, wait_s: float) -> Message | None:
    """Return the next message, or None after `wait_s`; `RankError` if `peer` is unreachable."""
    try:
        return receiver.receive(wait_s)
    except RankError as error:
        reason = str(error.__cause__ or error)[:200]
        raise RankError(f"{peer} is unreachable: {reason}") from error
