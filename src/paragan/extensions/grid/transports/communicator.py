"""Communicator of the training workers, for all transports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from paragan.extensions.grid.transports.peer_connection import (
    CLOSED,
    NO_FAILURE,
    MessageKind,
    PeerConnection,
    ReceiveBuffer,
)
from paragan.extensions.grid.transports.waiting import WorkerError


class Communicator:
    """Collectives and messages among the workers that train (LOCAL).

    It belongs to one membership: when that changes, all workers leave it and create another.

    A message is a 1-d contiguous uint8 tensor on the host, of any length. Sent and received
    messages must not be modified: another worker may be reading them. Every wait ends in a
    `WorkerError` at the time-out, and within 0.2 s after `stopped` becomes true; then only `abort`
    may follow. One thread at a time calls it. All workers make the same calls of `exchange` and
    `gather`, in one order.

    rank, size: among the workers; a coordinator that does not train takes part in `gather` and
    `exchange_with_root` alone, and has the rank `size`. peers: the workers that this one exchanges
    with. root: the process that gathers: worker 0, or the coordinator. links: the workers that this
    one is connected to: its peers and the root; for the root, all workers. Subclasses connect them.
    """

    def __init__(self, rank: int, size: int, peers: Iterable[int], arrivals: ReceiveBuffer, root: int) -> None:
        self.rank = rank
        self.size = size
        self.peers = frozenset(peers)
        self.root = root
        self.links = sorted(set(range(size)) - {rank} if rank == root else self.peers | {root})
        self._arrivals = arrivals
        self._connections: Mapping[int, PeerConnection] = {}  # by worker: all of `links`
        self._num_exchanges = self._num_gathers = 0
        self._failed_worker = NO_FAILURE
        self._has_left = False

    def exchange(self, sends: Mapping[int, Sequence[Tensor]]) -> dict[int, list[Tensor]]:
        """Send messages to some workers; return, by worker, its messages of the same call.

        Each of them names this worker, if need be with no messages.
        """
        return self.exchange_with_root(sends)

    def exchange_with_root(self, sends: Mapping[int, Sequence[Tensor]]) -> dict[int, list[Tensor]]:
        """Exchange messages as `exchange` does, with the coordinator among the workers."""
        self._num_exchanges += 1
        for peer, tensors in sends.items():
            self._send(peer, self._num_exchanges, tensors)
        return self._take(sends, self._num_exchanges)

    def gather(self, mine: Sequence[Tensor]) -> list[list[Tensor]] | None:
        """Return the messages of all workers at the root (GLOBAL); None elsewhere.

        Collective: every worker must call this. All messages have arrived when it returns.
        """
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
        """Leave within a second, without waiting for others. Live workers receive the reason."""
        if not self._has_left:
            self._has_left = True
            self._arrivals.discard()
            self._send_leave(self._failed_worker)
            self._leave(orderly=False)

    def close(self) -> None:
        """Leave together after all sends have arrived; `WorkerError` if a worker does not close."""
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
        """Start to send, without blocking; failures are raised by the calls that wait."""
        self._connections[peer].send(MessageKind.CALL, number, tensors)

    def _send_leave(self, failed: int) -> None:
        """Announce to all that this worker leaves (`ReceiveBuffer.mark_left`); never raises."""
        for connection in self._connections.values():
            connection.send(MessageKind.LEAVE, failed, [])

    def _leave(self, orderly: bool) -> None:
        """Close the connections, within half a second unless `orderly` (all others close, too)."""


# (order, stopped) -> communicator
CommunicatorFactory = Callable[[Mapping[str, Any], Callable[[], bool]], Communicator]
