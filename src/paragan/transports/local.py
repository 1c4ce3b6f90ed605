"""Workers that are threads of one process; also one worker alone. What is sent is handed over, not copied."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from torch import Tensor

from paragan.transports._arrivals import Arrivals
from paragan.transports._communicator import never
from paragan.transports._delivered import Delivered


def world(size: int, timeout_s: float = 300.0, stopped: Callable[[], bool] = never) -> list[Local]:
    """The communicators of that many workers, by rank, each for a thread of its own. Any two may exchange."""
    arrivals = [Arrivals(timeout_s, stopped) for _ in range(size)]
    return [Local(rank, arrivals) for rank in range(size)]


class Local(Delivered):
    """`Communicator`. arrivals: of all workers, by rank."""

    def __init__(self, rank: int, arrivals: Sequence[Arrivals]) -> None:
        peers = set(range(len(arrivals))) - {rank}
        super().__init__(rank, len(arrivals), peers, sys.maxsize, arrivals[rank])
        self._all = arrivals

    def _send(self, peer: int, number: int, tensors: Sequence[Tensor]) -> None:
        self._all[peer].put(self.rank, number, list(tensors))

    def _post(self, peer: int, tensors: Sequence[Tensor]) -> None:
        self._all[peer].post(self.rank, list(tensors))

    def _tell(self, peer: int, lacked: int) -> None:
        self._all[peer].leave(self.rank, lacked)
