"""The bound between a server and its workers, and the links that it gives room to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.distributed.transports.gloo_link import GlooReceiver, GlooSender, pair
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.schemes.parameter_server.messages import most_bytes

_NUMBER = itertools.count()  # of this process's games: all ranks begin them in one order


@dataclass(frozen=True)
class StalenessBound:
    """staleness: S, in steps. per_step: turns of either player in one step of a worker.

    Counted in turns of a side: whoever has made n of them plays on weights that contain all that every worker has made
    before n - S per_step, so nobody is further ahead of anybody.
    """

    staleness: int
    per_step: Mapping[Side, int]

    @classmethod
    def of(cls, gan: GAN, staleness: int) -> StalenessBound:
        return cls(staleness, {Side.G: 1, Side.D: gan.d.updates_per_step})

    @property
    def order(self) -> list[Side]:
        """Of the turns in a step."""
        return [Side.D] * self.per_step[Side.D] + [Side.G]

    @property
    def room(self) -> int:
        """Messages to or from a worker that may be under way: so many it may leave unanswered, or unread."""
        return (self.staleness + 1) * len(self.order) + 2

    def least(self, side: Side, number: int) -> int:
        """How many turns of every worker the weights of somebody who has made `number` of them contain at least."""
        return number - self.staleness * self.per_step[side]

    def steps(self, side: Side, turns: int) -> int:
        """Turns as steps, begun ones as whole ones."""
        return -(-turns // self.per_step[side])


def links(roles: Roles, gan: GAN, room: int) -> list[tuple[GlooSender, GlooReceiver]]:
    """This rank's ends, by worker; a worker has its own alone. All ranks make theirs in one order."""
    number, world, here = next(_NUMBER), roles.world, int(roles.world.rank > 0)
    most = max(most_bytes(seat.net) for seat in (gan.g, gan.d) if isinstance(seat, Player))
    found = []
    for worker in range(1, world.size):
        if world.rank in (0, worker):
            names = (f"server/{number}/{worker}/{way}" for way in ("up", "down"))
            up, down = (pair(world.store, name, here, roles.timeout_s) for name in names)
            sends, takes = (up, down) if here else (down, up)
            post = GlooSender(sends, 1 - here, room, roles.timeout_s)
            found.append((post, GlooReceiver(takes, 1 - here, most, room, roles.timeout_s)))
    return found
