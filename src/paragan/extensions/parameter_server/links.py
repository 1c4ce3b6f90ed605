"""Staleness bound of a server and its workers, and the links between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paragan.core.errors import RankError
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.distributed.links.gloo_link import GlooReceiver, GlooSender
from paragan.distributed.links.link import Message
from paragan.extensions.parameter_server.messages import max_message_bytes
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.schemes.base.rank_links import RankLinks


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


class ServerLinks(RankLinks):
    """Link ends of this rank: on the server a sender and a receiver for each worker, on a worker one of each."""

    def __init__(self, roles: Roles, gan: GAN, max_in_flight: int) -> None:
        super().__init__(roles)
        self.pairs: list[tuple[GlooSender, GlooReceiver]] = []
        players = [player for player in (gan.g, gan.d) if isinstance(player, Player)]
        max_bytes = max(max_message_bytes(player.net) for player in players)
        for worker in range(1, roles.world.size):
            up = f"parameters/{worker}/up"
            down = f"parameters/{worker}/down"
            if roles.world.rank == worker:
                sender = self.open_sender(up, max_in_flight)
                self.pairs.append((sender, self.open_receiver(down, max_bytes, max_in_flight)))
            elif roles.world.rank == 0:
                receiver = self.open_receiver(up, max_bytes, max_in_flight)
                self.pairs.append((self.open_sender(down, max_in_flight), receiver))


def receive_from(peer: str, receiver: GlooReceiver, wait_s: float) -> Message | None:
    """Return the next message, or None after `wait_s`; `RankError` if `peer` is unreachable."""
    try:
        return receiver.receive(wait_s)
    except RankError as error:
        reason = str(error.__cause__ or error)[:200]
        raise RankError(f"{peer} is unreachable: {reason}") from error
