"""Workers that are threads of one process; also one worker alone. What is sent is handed over, not copied."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from torch import Tensor

from paragan.distributed.transports.arrivals import ReceiveBuffer
from paragan.distributed.transports.communicator import never_stopped
from paragan.distributed.transports.peer_connection import BaseCommunicator


def create_communicators(
    size: int, timeout_s: float = 300.0, stopped: Callable[[], bool] = never_stopped, coordinated: bool = False
) -> list[ThreadCommunicator]:
    """The communicators of that many workers, by rank, each for a thread of its own. Any two may exchange.

    coordinated: there is one more, that does not train.
    """
    arrivals = [ReceiveBuffer(timeout_s, stopped) for _ in range(size + coordinated)]
    return [ThreadCommunicator(rank, size, arrivals) for rank in range(size + coordinated)]


class ThreadCommunicator(BaseCommunicator):
    """`Communicator`. arrivals: of all workers, by rank; the last may be a coordinator's."""

    def __init__(self, rank: int, size: int, arrivals: Sequence[ReceiveBuffer]) -> None:
        peers = set(range(size)) - {rank} if rank < size else set()
        super().__init__(rank, size, peers, sys.maxsize, arrivals[rank], size if len(arrivals) > size else 0)
        self._all = arrivals

    def _send(self, peer: int, number: int, tensors: Sequence[Tensor]) -> None:
        self._all[peer].put(self.rank, number, list(tensors))

    def _post(self, peer: int, tensors: Sequence[Tensor]) -> None:
        self._all[peer].post(self.rank, list(tensors))

    def _send_leave(self, peer: int, lacked: int) -> None:
        self._all[peer].mark_left(self.rank, lacked)

    def _leave(self, orderly: bool) -> None:
        """There are no ways to give up."""
