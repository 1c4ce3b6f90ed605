"""Links between a server and its workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from paragan.core.errors import RankError
from paragan.core.roles import Roles
from paragan.distributed.links.gloo_link import GlooReceiver, GlooSender
from paragan.distributed.links.link import Message
from paragan.extensions.parameter_server.messages import max_message_bytes
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.schemes.base.rank_links import RankLinks


@dataclass(frozen=True)
class LinkPair:
    """Ends of the two links between a worker and the server, at one of them. peer: what errors call the other one."""

    peer: str
    sender: GlooSender
    receiver: GlooReceiver

    def send(self, message: Message) -> None:
        """Start to send; `RankError` if the peer is unreachable."""
        with self._naming_peer():
            self.sender.send(message)

    def receive(self, wait_s: float) -> Message | None:
        """Return the next message, or None after `wait_s`; `RankError` if the peer is unreachable."""
        with self._naming_peer():
            return self.receiver.receive(wait_s)

    @contextmanager
    def _naming_peer(self) -> Iterator[None]:
        try:
            yield
        except RankError as error:  # of a rank of the link, 0 or 1
            raise RankError(f"{self.peer} is unreachable: {str(error.__cause__ or error)[:200]}") from error


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
                receiver = self.open_receiver(down, max_bytes, max_in_flight)
                self.pairs.append(LinkPair("the server on rank 0", sender, receiver))
            elif roles.world.rank == 0:
                receiver = self.open_receiver(up, max_bytes, max_in_flight)
                sender = self.open_sender(down, max_in_flight)
                self.pairs.append(LinkPair(f"the worker on rank {worker}", sender, receiver))
