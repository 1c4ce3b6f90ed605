"""Communicator of processes over gloo links: one link to each peer, and from all to the root.

No group contains all workers: a failed worker breaks only its links. A link has a `GlooSender` and a receiving thread
at either end, and between two workers a gloo group for each direction: gloo waits for the receiver before it sends, and
in one group its reply would wait for all that the receiver sends itself, so that the two would take turns. A link that
only joins a worker to the root is one group.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import Tensor

from paragan.core.errors import RankError
from paragan.distributed.links.gloo_link import connect_pair
from paragan.extensions.grid.transports.communicator import Backoff, Communicator, WorkerError, wait_until
from paragan.extensions.grid.transports.peer_connection import CLOSED, NO_FAILURE, PeerConnection, ReceiveBuffer

_FAREWELL_S = 0.4  # for messages that announce an abort


class GlooCommunicator(Communicator):
    """`Communicator` over gloo; the constructor returns when all workers are present and connected.

    store: shared by all workers. name: unique to the membership. max_bytes: of a received message; a longer one is
    rejected before memory is allocated. timeout_s: of every wait. stopped: polled during every wait. coordinated: one
    more process, of rank `size`, does not train. host: as in `gloo_link.connect_pair`.
    """

    def __init__(
        self,
        store: dist.Store,
        name: str,
        rank: int,
        size: int,
        peers: Iterable[int],
        *,
        max_bytes: int,
        timeout_s: float = 300.0,
        stopped: Callable[[], bool] = lambda: False,
        coordinated: bool = False,
        host: str | None = None,
    ) -> None:
        super().__init__(rank, size, peers, size if coordinated else 0)
        self._arrivals = arrivals = ReceiveBuffer(timeout_s, stopped)
        self._failed_worker = NO_FAILURE
        self._has_left = False
        # a waiting call, even an abandoned one, blocks its connection to the store
        store = dist.PrefixStore(name, store.clone())  # type: ignore[attr-defined]
        _wait_for_all(store, rank, size + coordinated, timeout_s, stopped)

        groups = self._connect(store, timeout_s, stopped, host)
        self._connections = {
            peer: PeerConnection(groups=of_peer, rank=rank, peer=peer, arrivals=arrivals, max_bytes=max_bytes)
            for peer, of_peer in groups.items()
        }

    def abort(self) -> None:
        """Leave within a second, without waiting for others. Live workers receive the reason."""
        if not self._has_left:
            self._arrivals.discard()
            self._announce(self._failed_worker)  # so that all name the worker that failed first, not this one
            self._disconnect(_FAREWELL_S)

    def close(self) -> None:
        self._announce(CLOSED)  # the last message: once it has come from all, nothing is in flight
        self._arrivals.await_closed(self.links)
        self._arrivals.discard()
        self._disconnect(self._arrivals.timeout_s)

    def _swap(self, sends: Mapping[int, Sequence[Tensor]], number: int, with_root: bool) -> dict[int, list[Tensor]]:
        for peer, tensors in sends.items():
            self._connections[peer].send(number, tensors)
        try:
            return self._arrivals.take(sends, number)
        except WorkerError as error:
            self._failed_worker = error.worker
            raise

    def _announce(self, reason: int) -> None:
        """Announce to all that this worker leaves; never raises. Of several reasons they take the first."""
        for connection in self._connections.values():
            connection.send_leave(reason)

    def _connect(
        self, store: dist.Store, timeout_s: float, stopped: Callable[[], bool], host: str | None
    ) -> dict[int, tuple[Any, Any]]:
        """Return the groups with each worker of `links`, which a thread makes: making one cannot be stopped."""
        groups: dict[int, tuple[Any, Any]] = {}
        errors: list[Exception] = []

        def connect() -> None:
            try:
                for peer in self.links:  # in ascending order, in which no workers wait in a cycle
                    pair = partial(connect_pair, store, rank=int(self.rank > peer), timeout_s=timeout_s, host=host)
                    groups[peer] = _connect_both_ways(pair, self.rank, peer, peer in self.peers)
            except Exception as error:
                errors.append(error)

        def missing() -> list[int]:
            unconnected = [peer for peer in self.links if peer not in groups][:1]
            if errors:
                peer = unconnected[0]
                raise WorkerError(f"no link to worker {peer}: {str(errors[0])[:200]}", peer)
            return unconnected

        thread = threading.Thread(target=connect, daemon=True, name="links")
        thread.start()
        wait_until(missing, timeout_s, stopped, thread.join)
        return groups

    def _disconnect(self, patience_s: float) -> None:
        """Close the connections; break those that are still open after a while."""
        self._has_left = True
        connections = list(self._connections.values())
        threads = [threading.Thread(target=connection.close, daemon=True) for connection in connections]
        for thread in threads:
            thread.start()
        for wait_s in (patience_s, _FAREWELL_S):  # what was broken in the first round ends in the second
            deadline = time.monotonic() + wait_s
            for connection, thread in zip(connections, threads, strict=True):
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    connection.abort()


def _connect_both_ways(connect: Callable[[str], Any], rank: int, peer: int, is_worker: bool) -> tuple[Any, Any]:
    """Return the groups to send in and to receive in; one and the same to the root."""
    name = f"{min(rank, peer)}/{max(rank, peer)}"  # the same at both
    first = connect(name)  # both ends make their groups in this order, else each would wait in another one
    if not is_worker:
        return first, first
    second = connect(f"{name}/down")
    return (first, second) if rank > peer else (second, first)


def _wait_for_all(store: dist.Store, rank: int, size: int, timeout_s: float, stopped: Callable[[], bool]) -> None:
    """Wait until all processes have made their key in the store."""
    awaited = list(range(size))

    def missing() -> list[int]:
        while awaited and store.check([f"here/{awaited[0]}"]):
            del awaited[0]
        return awaited[:1]

    try:
        store.set(f"here/{rank}", "")
        wait_until(missing, timeout_s, stopped, Backoff(min_s=0.001, max_s=0.05))
    except RuntimeError as error:
        raise RankError(f"the store of the workers does not answer: {str(error)[:200]}") from error
