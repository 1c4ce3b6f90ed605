"""A connection from one worker to another, for any transport."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import IntEnum

from torch import Tensor

from paragan.distributed.transports.arrivals import ReceiveBuffer


class MessageKind(IntEnum):
    """Purpose of a list of messages: a call, a post, its receipt, or a sender that leaves."""

    CALL = 0
    POST = 1
    TAKEN = 2
    LEAVE = 3


class PeerConnection(ABC):
    """A connection to one worker, in both directions.

    At most one post is in flight; the newest waiting one is next: slow workers skip the others.
    is_posting: whether a posted list has not arrived yet.
    """

    def __init__(self, peer: int, arrivals: ReceiveBuffer) -> None:
        self.peer = peer
        self._arrivals = arrivals
        self._lock = threading.Lock()  # a list is sent in one piece
        self.is_posting = False
        self._has_left = False
        self._next: list[Tensor] | None = None

    def send(self, kind: MessageKind, number: int, tensors: Sequence[Tensor]) -> None:
        """Start to send a list of messages, in one piece; nothing after a LEAVE."""
        with self._lock:
            if not self._has_left:  # no process reads what follows a LEAVE
                self._has_left = kind is MessageKind.LEAVE
                self._put(kind, number, tensors)

    def post(self, tensors: Sequence[Tensor]) -> None:
        """Send as soon as the previous post has been taken, unless a newer one replaces it."""
        with self._lock:
            self._next = list(tensors)
            if not self.is_posting:
                self._post_next()

    def _dispatch(self, kind: MessageKind, number: int, tensors: list[Tensor]) -> None:
        """Handle a list of messages from the other end."""
        match kind:
            case MessageKind.CALL:
                self._arrivals.put(self.peer, number, tensors)
            case MessageKind.POST:
                self._arrivals.post(self.peer, tensors)
                self.send(MessageKind.TAKEN, 0, [])
            case MessageKind.TAKEN:
                with self._lock:
                    self._post_next()
            case MessageKind.LEAVE:
                self._arrivals.mark_left(self.peer, number)

    def _post_next(self) -> None:
        tensors = self._next
        self._next = None
        self.is_posting = tensors is not None
        if tensors is not None and not self._has_left:
            self._put(MessageKind.POST, 0, tensors)

    @abstractmethod
    def _put(self, kind: MessageKind, number: int, tensors: Sequence[Tensor]) -> None:
        """Start to send, in order, without blocking; never raises for an unreachable worker."""
