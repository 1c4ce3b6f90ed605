"""Staleness bound of a server and its workers, and what a session has on either side: players and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paragan.core.errors import RankError
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.distributed.transports.gloo_link import GlooReceiver, GlooSender
from paragan.distributed.transports.link import Message
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.schemes._concurrent import StalenessLog
from paragan.schemes._rank_links import RankLinks
from paragan.schemes.parameter_server.messages import max_message_bytes


@dataclass(frozen=True)
class StalenessBound:
    """Bound on the steps between workers. staleness: S, in steps. per_step: turns of each player.

    A worker that has made n turns of a side computes with weights that contain all turns that every
    worker has made before n - S per_step, so no worker is further ahead of another.
    """

    staleness: int
    per_step: Mapping[Side, int]

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


class ServerSession:
    """Players and links of one game on this rank. orders: what each turn must use, by side, as in another run.

    _links: on the server the ends of one link per worker to send and to receive, on a worker those of one.
    """

    def __init__(
        self, gan: GAN, roles: Roles, staleness: int, orders: Mapping[Side, Sequence[int]] | None = None
    ) -> None:
        assert isinstance(gan.g, Player) and isinstance(gan.d, Player)
        self.gan = gan
        self.roles = roles
        self.bound = StalenessBound(staleness, {Side.G: 1, Side.D: gan.d.updates_per_step})
        self.staleness_logs: Mapping[str, StalenessLog] = {side.value: StalenessLog() for side in Side}
        self._players = {Side.G: gan.g, Side.D: gan.d}
        self._orders = orders or {}
        self._rank_links = RankLinks(roles)
        rank = roles.world.rank
        workers = range(1, roles.world.size) if rank == 0 else [rank]
        self._links = [self._open(worker, is_server=rank == 0) for worker in workers]

    def _open(self, worker: int, is_server: bool) -> tuple[GlooSender, GlooReceiver]:
        room = self.bound.max_in_flight
        max_bytes = max(max_message_bytes(player.net) for player in self._players.values())
        up = f"parameters/{worker}/up"
        down = f"parameters/{worker}/down"
        if is_server:
            receiver = self._rank_links.open_receiver(up, max_bytes, room)
            return self._rank_links.open_sender(down, room), receiver
        sender = self._rank_links.open_sender(up, room)
        return sender, self._rank_links.open_receiver(down, max_bytes, room)

    def close(self) -> None:
        """Close the links."""
        self._rank_links.close()


def receive_from(peer: str, receiver: GlooReceiver, wait_s: float) -> Message | None:
    """Return the next message, or None after `wait_s`; `RankError` if `peer` is unreachable."""
    try:
        return receiver.receive(wait_s)
    except RankError as error:
        reason = str(error.__cause__ or error)[:200]
        raise RankError(f"{peer} is unreachable: {reason}") from error
