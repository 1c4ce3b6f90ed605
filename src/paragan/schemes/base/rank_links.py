"""Links of this rank to other ranks.

A link is a gloo group of its two ends; all ranks create theirs in one order, which avoids deadlocks.
"""

import itertools
from functools import partial
from typing import Any

from paragan.core.dist import Collective
from paragan.core.roles import Roles
from paragan.distributed.links.gloo_link import GlooReceiver, GlooSender, connect_pair

_SESSION_NUMBERS = itertools.count()  # equal on all ranks, which open their sessions in one order


class RankLinks:
    """Open ends of a session's links on this rank. A link's name begins with the kind of its messages."""

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self._number = next(_SESSION_NUMBERS)
        self._senders: list[GlooSender] = []
        self._receivers: list[GlooReceiver] = []

    def open_sender(self, name: str, capacity: int = 2) -> GlooSender:
        """Open the sending end of a link; waits for the other end. capacity: messages that may
        wait to be sent."""
        kind = name.partition("/")[0]
        count = partial(self.roles.world.count_bytes, kind, collective=Collective.LINK)
        sender = GlooSender(
            group=self._connect(name, 0), peer=1, capacity=capacity, timeout_s=self.roles.timeout_s, count_bytes=count
        )
        self._senders.append(sender)
        return sender

    def open_receiver(self, name: str, max_bytes: int, capacity: int) -> GlooReceiver:
        """Open the receiving end of a link; waits for the other end.

        capacity: messages that it buffers, enough for all that the sender may send while this rank computes: a link
        that stalls because its receiver is busy would look like one whose receiver has failed.
        """
        receiver = GlooReceiver(
            group=self._connect(name, 1), peer=0, max_bytes=max_bytes, capacity=capacity, timeout_s=self.roles.timeout_s
        )
        self._receivers.append(receiver)
        return receiver

    def close(self) -> None:
        """Close the senders, then the receivers, each of which reads until the other rank has closed its sender."""
        for sender in self._senders:
            sender.close()
        for receiver in self._receivers:
            receiver.close()

    def _connect(self, name: str, rank: int) -> Any:
        """Return the group of a link. rank: in it, 0 for its sender and 1 for its receiver."""
        return connect_pair(self.roles.world.store, f"link/{self._number}/{name}", rank, self.roles.timeout_s)
