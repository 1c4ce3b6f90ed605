"""Links between a server and its workers."""

from typing import NamedTuple

from paragan.core.errors import RankError
from paragan.core.roles import Roles
from paragan.distributed.links.gloo_link import GlooReceiver, GlooSender
from paragan.distributed.links.link import Message
from paragan.extensions.parameter_server.messages import max_message_bytes
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.schemes.base.rank_links import RankLinks


class LinkPair(NamedTuple):
    """Ends of the two links between a worker and the server, at one of them."""

    sender: GlooSender
    receiver: GlooReceiver


class ServerLinks(RankLinks):
    """Link ends of this rank: a pair for each worker on the server, one pair on a worker."""

    def __init__(self, roles: Roles, gan: GAN, max_in_flight: int) -> None:
        super().__init__(roles)
        self.pairs: list[LinkPair] = []
        players = [player for player in (gan.g, gan.d) if isinstance(player, Player)]
        max_bytes = max(max_message_bytes(player.net) for player in players)
        for worker in range(1, roles.world.size):
            up = f"parameters/{worker}/up"
            down = f"parameters/{worker}/down"
            # both ends open "up" first: opening waits for the other end
            if roles.world.rank == worker:
                sender = self.open_sender(up, max_in_flight)
                self.pairs.append(LinkPair(sender, self.open_receiver(down, max_bytes, max_in_flight)))
            elif roles.world.rank == 0:
                receiver = self.open_receiver(up, max_bytes, max_in_flight)
                self.pairs.append(LinkPair(self.open_sender(down, max_in_flight), receiver))


def receive_from(peer: str, receiver: GlooReceiver, wait_s: float) -> Message | None:
    """Return the next message, or None after `wait_s`; `RankError` if `peer` is unreachable."""
    try:
        return receiver.receive(wait_s)
    except RankError as error:
        reason = str(error.__cause__ or error)[:200]
        raise RankError(f"{peer} is unreachable: {reason}") from error
