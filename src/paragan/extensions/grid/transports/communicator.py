"""Communicator of the training workers, for all transports; waits for other workers, and their errors."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from paragan.core.errors import RankError

_POLL_S = 0.05  # polling interval of `stopped`


class Communicator(ABC):
    """Collectives and messages among the workers that train.

    It belongs to one membership: when that changes, all workers leave it and create another.

    A message is a 1-d contiguous uint8 tensor on the host, of any length. Sent and received messages must not be
    modified: another worker may be reading them. Every wait ends in a `WorkerError` at the time-out, and within 0.2 s
    after `stopped` becomes true; then only `abort` may follow. One thread at a time calls it. All workers make the same
    calls of `exchange` and `gather`, in one order.

    rank, size: among the workers; a coordinator that does not train takes part in `gather` and in
    exchanges `with_root`, and has the rank `size`. peers: the workers that this one exchanges
    with. root: the process that gathers: worker 0, or the coordinator. links: the workers that this
    one is connected to: its peers and the root; for the root, all workers. Subclasses connect them.
    """

    def __init__(self, rank: int, size: int, peers: Iterable[int], root: int) -> None:
        self.rank = rank
        self.size = size
        self.peers = frozenset(peers)
        self.root = root
        self.links = sorted(set(range(size)) - {rank} if rank == root else self.peers | {root})
        self._num_exchanges = 0
        self._num_gathers = 0

    def exchange(self, sends: Mapping[int, Sequence[Tensor]], with_root: bool = False) -> dict[int, list[Tensor]]:
        """Send messages to some workers; return, by worker, its messages of the same call.

        Each of them must name this worker in its own call; an empty list is enough. with_root: the
        coordinator takes part, too.
        """
        self._num_exchanges += 1
        return self._swap(sends, self._num_exchanges, with_root)

    def gather(self, messages: Sequence[Tensor]) -> list[list[Tensor]] | None:
        """Return the messages of all workers at the root; None elsewhere.

        Collective: every worker must call this. All messages have arrived when it returns.
        """
        self._num_gathers += 1
        is_root = self.rank == self.root
        sends = dict.fromkeys(self.links, ()) if is_root else {self.root: messages}
        received = self._swap(sends, -self._num_gathers, with_root=True)
        # the root makes this second call once it has received everything: then all may return. Both have one number, as
        # messages between two workers arrive in order
        self._swap(dict.fromkeys(sends, ()), -self._num_gathers, with_root=True)
        if not is_root:
            return None
        received[self.rank] = list(messages)
        return [received[worker] for worker in range(self.size)]

    @abstractmethod
    def abort(self) -> None:
        """Leave within a second, without waiting for others; may be called again."""

    @abstractmethod
    def close(self) -> None:
        """Leave together after all sends have arrived; `WorkerError` if a worker does not close."""

    @abstractmethod
    def _swap(self, sends: Mapping[int, Sequence[Tensor]], number: int, with_root: bool) -> dict[int, list[Tensor]]:
        """Send the messages of a call, and return those that the same workers send in it.

        number: of the call, from 1 for an exchange, from -1 downwards for `gather`. Raises
        `WorkerError` if one is at another call.
        """


# (order, stopped) -> communicator. The order has the number of the `membership`, `rank` and `peers` of this process,
# and by worker its rank under mpiexec (`places`), or their number (`size`). It comes as JSON from the coordinator.
CommunicatorFactory = Callable[[Mapping[str, Any], Callable[[], bool]], Communicator]


class WorkerError(RankError):
    """Failure of another worker: unreachable, silent or out of step. worker: its rank."""

    def __init__(self, message: str, worker: int) -> None:
        super().__init__(message)
        self.worker = worker


def failed_error(worker: int, reason: object) -> WorkerError:
    """Return the error of a worker that ended, or whose connection broke."""
    return WorkerError(f"worker {worker} failed: {str(reason)[:200]}", worker)


def out_of_step_error(peer: int, peer_number: int, number: int) -> WorkerError:
    """Return the error of a worker that makes another call than this one, by the numbers of both."""

    def name(call: int) -> str:
        return f"{'exchange' if call > 0 else 'gather'} {abs(call)}"

    return WorkerError(
        f"worker {peer} is at {name(peer_number)}, this worker at {name(number)}; all workers must make the same calls",
        peer,
    )


def wait_until(
    missing: Callable[[], list[int]], timeout_s: float, stopped: Callable[[], bool], pause: Callable[[float], object]
) -> None:
    """Wait until no worker is missing. pause: waits for a change, at most so many seconds."""
    began = time.monotonic()
    while workers := missing():
        waited_s = time.monotonic() - began
        names = f"worker{'' if len(workers) == 1 else 's'} {', '.join(map(str, sorted(workers)))}"
        if stopped():
            raise WorkerError(f"stopped after {waited_s:.1f} s of waiting for {names}", workers[0])
        if waited_s >= timeout_s:
            raise WorkerError(f"{names} did not answer within {timeout_s:g} s", workers[0])
        pause(min(_POLL_S, timeout_s - waited_s))


class Backoff:
    """A pause for `wait_until`: a sixteenth of the time waited so far, between min_s and max_s."""

    def __init__(self, min_s: float, max_s: float) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._began = time.monotonic()

    def __call__(self, limit_s: float) -> None:
        waited_s = time.monotonic() - self._began
        time.sleep(min(max(self._min_s, waited_s / 16), self._max_s, limit_s))
