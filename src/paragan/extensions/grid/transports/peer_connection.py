"""Communicator over a connection to each peer, whose messages a thread puts into a buffer as they arrive."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum

from torch import Tensor

from paragan.extensions.grid.transports.communicator import Communicator, out_of_step_error
from paragan.extensions.grid.transports.waiting import WorkerError, wait_until

_AHEAD = 2  # waiting lists of one worker: its next call needs an answer to the last
NO_FAILURE = -1  # instead of the rank of an unreachable worker
CLOSED = -2


class ReceiveBuffer:
    """Messages of the other workers until this one takes them.

    The number of a call counts from 1 for `exchange`, from -1 downwards for `gather`.
    """

    def __init__(self, timeout_s: float, stopped: Callable[[], bool]) -> None:
        self.timeout_s = timeout_s
        self.stopped = stopped
        self._changed = threading.Condition()
        self._lists: dict[int, deque[tuple[int, list[Tensor]]]] = {}
        self._failures: dict[int, WorkerError] = {}
        self._closed: set[int] = set()
        self._ended = False

    def put(self, peer: int, number: int, tensors: list[Tensor]) -> None:
        """Add the messages of a worker's call with this number."""
        with self._changed:
            waiting = self._lists.setdefault(peer, deque())
            if self._ended:
                return
            if len(waiting) >= _AHEAD:
                self._failures.setdefault(peer, out_of_step_error(peer, number, waiting[0][0]))
            else:
                waiting.append((number, tensors))
            self._changed.notify_all()

    def mark_left(self, peer: int, failed: int) -> None:
        """Record that a worker leaves.

        failed: the worker that it could not reach, NO_FAILURE, or CLOSED (an error only if more is
        expected).
        """
        if failed >= 0:
            error = WorkerError(f"worker {peer} has left because worker {failed} failed", failed)
            return self.mark_failed(peer, error)
        with self._changed:
            if failed == CLOSED:
                self._closed.add(peer)
            self.mark_failed(peer, WorkerError(f"worker {peer} has left", peer))

    def mark_failed(self, peer: int, error: WorkerError) -> None:
        """Record why nothing more comes from a worker. The first reason counts."""
        with self._changed:
            self._failures.setdefault(peer, error)
            self._changed.notify_all()

    def take(self, peers: Iterable[int], number: int) -> dict[int, list[Tensor]]:
        """Return each worker's messages of this call; `WorkerError` if one is at another call."""
        peers = list(peers)
        with self._changed:
            self.wait_until(lambda: [peer for peer in peers if not self._lists.get(peer)])
            for peer in peers:
                peer_number, _ = self._lists[peer][0]
                if peer_number != number:
                    raise out_of_step_error(peer, peer_number, number)
            return {peer: self._lists[peer].popleft()[1] for peer in peers}

    def has_closed(self, peer: int) -> bool:
        """Return whether the worker has left in an orderly way."""
        return peer in self._closed

    def discard(self) -> None:
        """Drop all messages, including later ones."""
        with self._changed:
            self._ended = True
            self._lists.clear()

    def wait_until(self, missing: Callable[[], list[int]]) -> None:
        """Wait until no worker is missing. Raises `WorkerError` at once if one has failed."""

        def missing_and_alive() -> list[int]:
            left = missing()
            for peer in left:
                if peer in self._failures:
                    raise self._failures[peer]
            return left

        with self._changed:
            wait_until(missing_and_alive, self.timeout_s, self.stopped, self._changed.wait)


class MessageKind(IntEnum):
    """Purpose of a list of messages: a call, or a sender that leaves."""

    CALL = 0
    LEAVE = 1


class PeerConnection(ABC):
    """A connection to one worker, in both directions."""

    def __init__(self, peer: int, arrivals: ReceiveBuffer) -> None:
        self.peer = peer
        self._arrivals = arrivals
        self._lock = threading.Lock()  # a list is sent in one piece
        self._has_left = False

    def send(self, kind: MessageKind, number: int, tensors: Sequence[Tensor]) -> None:
        """Start to send a list of messages, in one piece; nothing after a LEAVE."""
        with self._lock:
            if not self._has_left:  # no process reads what follows a LEAVE
                self._has_left = kind is MessageKind.LEAVE
                self._put(kind, number, tensors)

    def _dispatch(self, kind: MessageKind, number: int, tensors: list[Tensor]) -> None:
        """Handle a list of messages from the other end."""
        if kind is MessageKind.CALL:
            self._arrivals.put(self.peer, number, tensors)
        else:
            self._arrivals.mark_left(self.peer, number)

    @abstractmethod
    def _put(self, kind: MessageKind, number: int, tensors: Sequence[Tensor]) -> None:
        """Start to send, in order, without blocking; never raises for an unreachable worker."""


class ConnectedCommunicator(Communicator):
    """Communicator over connections; subclasses make them. arrivals: what their threads receive."""

    def __init__(self, rank: int, size: int, peers: Iterable[int], arrivals: ReceiveBuffer, root: int) -> None:
        super().__init__(rank, size, peers, root)
        self._arrivals = arrivals
        self._connections: Mapping[int, PeerConnection] = {}  # by worker: all of `links`
        self._failed_worker = NO_FAILURE
        self._has_left = False

    def abort(self) -> None:
        """Leave within a second, without waiting for others. Live workers receive the reason."""
        if not self._has_left:
            self._has_left = True
            self._arrivals.discard()
            self._send_leave(self._failed_worker)
            self._leave(orderly=False)

    def close(self) -> None:
        with self._recording_failure():
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

    def _send(self, peer: int, number: int, tensors: Sequence[Tensor]) -> None:
        """Start to send; failures are raised by the calls that wait."""
        self._connections[peer].send(MessageKind.CALL, number, tensors)

    def _send_leave(self, failed: int) -> None:
        """Announce to all that this worker leaves (`ReceiveBuffer.mark_left`); never raises."""
        for connection in self._connections.values():
            connection.send(MessageKind.LEAVE, failed, [])

    def _leave(self, orderly: bool) -> None:
        """Close the connections, within half a second unless `orderly` (all others close, too)."""
