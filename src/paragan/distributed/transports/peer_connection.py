"""Base classes of the communicators, and of a connection from one worker to another, for any transport."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum

from torch import Tensor

from paragan.distributed.transports.arrivals import CLOSED, NO_FAILURE, ReceiveBuffer
from paragan.distributed.transports.communicator import WorkerError, check_messages, format_workers


class BaseCommunicator:
    """`Communicator` without the transport.

    peers: the workers that this one exchanges with. root: the process that gathers: worker 0, or an additional one
    that does not train, whose rank is `size`. links: the workers that this one needs a connection to: its peers and
    the root; for the root, all workers.
    """

    def __init__(
        self, rank: int, size: int, peers: Iterable[int], most_bytes: int, arrivals: ReceiveBuffer, root: int = 0
    ) -> None:
        self.rank, self.size, self.peers, self.most_bytes, self.root = rank, size, frozenset(peers), most_bytes, root
        others = set(range(size)) - {rank}
        if not self.peers <= others:
            raise ValueError(
                f"found {format_workers(self.peers)} as peers of worker {rank} of {size}, expected others of them"
            )
        self.links = sorted(others if rank == root else self.peers | {root})
        self._arrivals = arrivals
        self._connections: Mapping[int, PeerConnection] = {}  # by the worker at the other end: all of `links`
        self._num_exchanges = self._num_gathers = 0
        self._failed_worker, self._has_left = NO_FAILURE, False

    def exchange(self, sends: Mapping[int, Sequence[Tensor]]) -> dict[int, list[Tensor]]:
        self._check(sends, self.peers)
        return self.exchange_with_root(sends)

    def exchange_with_root(self, sends: Mapping[int, Sequence[Tensor]]) -> dict[int, list[Tensor]]:
        self._check(sends, self.links)
        self._num_exchanges += 1
        for peer, tensors in sends.items():
            self._send(peer, self._num_exchanges, tensors)
        return self._take(sends, self._num_exchanges)

    def post(self, sends: Mapping[int, Sequence[Tensor]]) -> None:
        self._check(sends, self.peers)
        for peer, tensors in sends.items():
            self._connections[peer].post(tensors)

    def newest(self) -> dict[int, list[Tensor]]:
        with self._recording_failure():
            return self._arrivals.newest()

    def wait(self, peer: int, timeout_s: float | None = None) -> None:
        with self._recording_failure():
            self._arrivals.wait(peer, timeout_s)

    def gather(self, mine: Sequence[Tensor]) -> list[list[Tensor]] | None:
        check_messages(mine, self.most_bytes)
        self._num_gathers += 1
        number = -self._num_gathers
        if self.rank != self.root:
            self._send(self.root, number, mine)
            self._take([self.root], number)  # the root has received everything
            return None
        found = {self.rank: list(mine), **self._take(self.links, number)}
        for peer in self.links:
            self._send(peer, number, [])
        return [found[worker] for worker in range(self.size)]

    def abort(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._arrivals.discard()
            self._send_leave(self._failed_worker)
            self._leave(orderly=False)

    def close(self) -> None:
        with self._recording_failure():
            self._arrivals.wait_until(
                lambda: [peer for peer in self._peers_with_posts() if not self._arrivals.has_closed(peer)]
            )
            self._send_leave(CLOSED)
            self._arrivals.wait_until(lambda: [peer for peer in self.links if not self._arrivals.has_closed(peer)])
        self._has_left = True
        self._arrivals.discard()
        self._leave(orderly=True)

    def _take(self, peers: Iterable[int], number: int) -> dict[int, list[Tensor]]:
        with self._recording_failure():
            return self._arrivals.take(peers, number)

    @contextmanager
    def _recording_failure(self) -> Iterator[None]:
        """Record the worker of a `WorkerError`; `abort` reports it to the others."""
        try:
            yield
        except WorkerError as error:
            self._failed_worker = error.worker
            raise

    def _check(self, sends: Mapping[int, Sequence[Tensor]], allowed: Collection[int]) -> None:
        if not sends.keys() <= set(allowed):
            raise ValueError(f"found {format_workers(sends)}, expected some of the peers, {format_workers(allowed)}")
        for tensors in sends.values():
            check_messages(tensors, self.most_bytes)

    def _send(self, peer: int, number: int, tensors: Sequence[Tensor]) -> None:
        """Start to send, without blocking. The failure of a worker is raised by the calls that wait for it."""
        self._connections[peer].send(MessageKind.CALL, number, tensors)

    def _peers_with_posts(self) -> list[int]:
        """Workers to which a posted message is in flight or waiting."""
        return [peer for peer, connection in self._connections.items() if connection.is_posting]

    def _send_leave(self, lacked: int) -> None:
        """Announce to all that this worker leaves (`ReceiveBuffer.mark_left`); never raises."""
        for connection in self._connections.values():
            connection.send(MessageKind.LEAVE, lacked, [])

    def _leave(self, orderly: bool) -> None:
        """Close the connections. orderly: all others do, too; otherwise within half a second."""


class MessageKind(IntEnum):
    """Purpose of a list of messages: a call, a post, the receipt of a post, or that its sender leaves."""

    CALL = 0
    POST = 1
    TAKEN = 2
    LEAVE = 3


class PeerConnection(ABC):
    """A connection to one worker, both ways.

    At most one post is in flight, and of those that wait the newest is sent: a slow worker skips the others.
    """

    def __init__(self, peer: int, arrivals: ReceiveBuffer) -> None:
        self.peer, self._arrivals = peer, arrivals
        self._lock = threading.Lock()  # a list goes in one piece
        self._posted = self._has_left = False
        self._next: list[Tensor] | None = None

    @property
    def is_posting(self) -> bool:
        """Whether a posted list has not arrived yet."""
        return self._posted

    def send(self, kind: MessageKind, number: int, tensors: Sequence[Tensor]) -> None:
        with self._lock:
            if not self._has_left:  # no process reads what follows a LEAVE
                self._has_left = kind is MessageKind.LEAVE
                self._put(kind, number, tensors)

    def post(self, tensors: Sequence[Tensor]) -> None:
        with self._lock:
            self._next = list(tensors)
            if not self._posted:
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
        tensors, self._next = self._next, None
        self._posted = tensors is not None
        if tensors is not None and not self._has_left:
            self._put(MessageKind.POST, 0, tensors)

    @abstractmethod
    def _put(self, kind: MessageKind, number: int, tensors: Sequence[Tensor]) -> None:
        """Start to send, in order, without blocking; never raises for an unreachable worker."""
