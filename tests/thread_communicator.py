"""Communicator of threads of one process, or of a single worker. Messages are not copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from paragan.extensions.grid.transports.peer_connection import (
    ConnectedCommunicator,
    MessageKind,
    PeerConnection,
    ReceiveBuffer,
)


def create_communicators(
    size: int, timeout_s: float = 300.0, stopped: Callable[[], bool] = lambda: False, coordinated: bool = False
) -> list[ThreadCommunicator]:
    """Return communicators by rank, for a thread each. coordinated: one more does not train."""
    arrivals = [ReceiveBuffer(timeout_s, stopped) for _ in range(size + coordinated)]
    return [ThreadCommunicator(rank, size, arrivals) for rank in range(size + coordinated)]


class ThreadCommunicator(ConnectedCommunicator):
    """`Communicator` of a thread. arrivals: by rank; the last may be a coordinator's."""

    def __init__(self, rank: int, size: int, arrivals: Sequence[ReceiveBuffer]) -> None:
        peers = set(range(size)) - {rank} if rank < size else set()
        root = size if len(arrivals) > size else 0
        super().__init__(rank, size, peers, arrivals[rank], root)
        self._connections = {peer: _ThreadConnection(rank, peer, arrivals) for peer in self.links}


class _ThreadConnection(PeerConnection):
    """Connection to the buffer of another worker. arrivals: of all workers, by rank."""

    def __init__(self, rank: int, peer: int, arrivals: Sequence[ReceiveBuffer]) -> None:
        super().__init__(peer, arrivals[rank])
        self._rank = rank
        self._theirs = arrivals[peer]

    def _put(self, kind: MessageKind, number: int, tensors: Sequence[Tensor]) -> None:
        if kind is MessageKind.LEAVE:
            self._theirs.mark_left(self._rank, number)
        else:
            self._theirs.put(self._rank, number, list(tensors))
