"""Communicator of the training workers, for all transports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from paragan.extensions.grid.transports.waiting import WorkerError


class Communicator(ABC):
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

    def __init__(self, rank: int, size: int, peers: Iterable[int], root: int) -> None:
        self.rank = rank
        self.size = size
        self.peers = frozenset(peers)
        self.root = root
        self.links = sorted(set(range(size)) - {rank} if rank == root else self.peers | {root})
        self._num_exchanges = self._num_gathers = 0

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

    def gather(self, messages: Sequence[Tensor]) -> list[list[Tensor]] | None:
        """Return the messages of all workers at the root (GLOBAL); None elsewhere.

        Collective: every worker must call this. All messages have arrived when it returns.
        """
        self._num_gathers += 1
        number = -self._num_gathers
        if self.rank != self.root:
            self._send(self.root, number, messages)
            self._take([self.root], number)  # the root has received everything
            return None
        by_worker = {self.rank: list(messages), **self._take(self.links, number)}
        for peer in self.links:
            self._send(peer, number, [])
        return [by_worker[worker] for worker in range(self.size)]

    @abstractmethod
    def abort(self) -> None:
        """Leave within a second, without waiting for others; may be called again."""

    @abstractmethod
    def close(self) -> None:
        """Leave together after all sends have arrived; `WorkerError` if a worker does not close."""

    @abstractmethod
    def _send(self, peer: int, number: int, tensors: Sequence[Tensor]) -> None:
        """Start to send the messages of a call, without blocking.

        number: of the call, from 1 for an exchange, from -1 downwards for `gather`.
        """

    @abstractmethod
    def _take(self, peers: Iterable[int], number: int) -> dict[int, list[Tensor]]:
        """Return the messages of each worker of a call; `WorkerError` if one is at another call."""


# (order, stopped) -> communicator
CommunicatorFactory = Callable[[Mapping[str, Any], Callable[[], bool]], Communicator]


def out_of_step_error(peer: int, peer_number: int, number: int) -> WorkerError:
    """Return the error of a worker that makes another call than this one, by the numbers of both."""
    return WorkerError(
        f"worker {peer} is at {_call_name(peer_number)}, this worker at {_call_name(number)}; all workers must make "
        "the same calls",
        peer,
    )


def _call_name(number: int) -> str:
    return f"{'exchange' if number > 0 else 'gather'} {abs(number)}"
