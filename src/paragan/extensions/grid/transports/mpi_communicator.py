"""Communicators of the processes of one mpiexec, and their MPI groups.

WORLD is all processes, LOCAL those that train, GLOBAL those and the one that gathers. Neighbours
exchange by a neighbourhood collective on LOCAL, or on GLOBAL with the coordinator among them.
Importing this file initialises MPI; the exit of the process finalises it. One thread at a time may
call MPI ("serialized"): a communicator calls it in its caller's thread.

Source: Perez et al. 2020, for the groups. LOCAL and GLOBAL are graphs, not Cartesian topologies as there: workers with
several cells need not form a torus.
"""

import atexit
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.extensions.grid.transports.communicator import (
    Backoff,
    Communicator,
    WorkerError,
    failed_error,
    out_of_step_error,
    wait_until,
)

try:
    import mpi4py
except ImportError:
    raise ConfigError(
        f"transport=mpi requires mpi4py; run {sys.executable} -m pip install mpi4py mpich, or use transport=gloo"
    ) from None

mpi4py.rc.thread_level = "serialized"
mpi4py.rc.finalize = False  # it would wait for every process without a limit; see `_finalize`
from mpi4py import MPI  # noqa: E402

_HEAD_TAG = 1
_TEXT_TAG = (1 << 15) - 1  # largest tag of every MPI; memberships use lower ones
_MAX_MESSAGES = 1 << 16  # of one call
_MAX_TEXT_BYTES = 1 << 16
_PAUSE_S = (2e-5, 1e-2)  # uses less than 1 % of a core; MPI's waits would use all of it
_FAREWELL_S = 0.5
_EMPTY = torch.empty(0, dtype=torch.uint8)
_open_communicators: set[object] = set()  # communicators that were not closed


@atexit.register
def _finalize() -> None:
    """Finalise MPI if all communicators are closed; otherwise mpiexec ends the other processes."""
    if not _open_communicators and not MPI.Is_finalized():
        MPI.Finalize()


class MpiWorld:
    """Processes that mpiexec started (WORLD). rank, size: of this one, among them."""

    def __init__(self) -> None:
        self.rank = MPI.COMM_WORLD.rank
        self.size = MPI.COMM_WORLD.size

    def broadcast_text(self, text: str, timeout_s: float) -> None:
        """Send a text from process 0 to all others; returns when MPI has taken it."""
        data = [bytearray(text.encode()), MPI.BYTE]
        others = [rank for rank in range(self.size) if rank != self.rank]
        sent = [MPI.COMM_WORLD.Isend(data, rank, _TEXT_TAG) for rank in others]
        _wait(lambda: [] if MPI.Request.Testall(sent) else [0], timeout_s)

    def receive_text(self, timeout_s: float) -> str:
        """Return the text of process 0. Raises `WorkerError` if none arrives in time."""
        status = MPI.Status()
        _wait(lambda: [] if MPI.COMM_WORLD.Iprobe(0, _TEXT_TAG, status) else [0], timeout_s)
        data = bytearray(_checked(status.Get_count(MPI.BYTE), _MAX_TEXT_BYTES, 0))
        MPI.COMM_WORLD.Recv([data, MPI.BYTE], 0, _TEXT_TAG)
        return data.decode()


class MpiCommunicator(Communicator):
    """`Communicator` of a new membership over MPI; the constructor returns when all its processes are present.

    Collective: every process of the membership must construct it, and no other. name: unique to the membership.
    workers: their ranks in WORLD, by rank as a worker. coordinator: a process in WORLD that does not train and gathers
    instead of worker 0. It has no peers, its `rank` is the number of workers, and it takes no part in exchanges of the
    workers alone. max_bytes, timeout_s, stopped: as in `GlooCommunicator`.

    mpiexec ends all processes if one is killed; one that hangs is found by the time-out, or by `stopped`.

    In a call each worker sends its peers a head of int64 (the number of the call and the lengths of
    its messages); the messages travel by a neighbourhood collective.
    """

    def __init__(
        self,
        name: str,
        workers: Sequence[int],
        peers: Iterable[int],
        *,
        coordinator: int | None = None,
        max_bytes: int,
        timeout_s: float = 300.0,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        members = [*workers, *([] if coordinator is None else [coordinator])]
        rank = members.index(MPI.COMM_WORLD.rank)
        super().__init__(rank, len(workers), peers, root=0 if coordinator is None else len(workers))
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._stopped = stopped
        self._sent: list[tuple[Any, Tensor]] = []  # requests, with what MPI still reads
        self._request = MPI.REQUEST_NULL  # holds the buffers that MPI uses, also after an error
        # a tag for each membership, the same at all without a message: what an earlier one left matches nothing
        tag = zlib.crc32(name.encode()) % _TEXT_TAG
        _open_communicators.add(self)
        # what follows waits without a time-out, for processes that are present
        _wait_for_all(members, rank, tag, timeout_s, stopped)
        self._global = _graph(members, self.links, tag)
        # None: this process does not train
        self._local = _graph(workers, sorted(self.peers), tag) if rank < len(workers) else None

    def abort(self) -> None:
        """Leave without waiting for others. MPI does not free this communicator's memory."""
        deadline = time.monotonic() + _FAREWELL_S
        pause = Backoff(*_PAUSE_S)
        while self._has_unsent() and time.monotonic() < deadline:
            pause(_FAREWELL_S)

    def close(self) -> None:
        barrier = self._global.Ibarrier()
        self._wait(lambda: [] if not self._has_unsent() and barrier.Test() else self.links)
        for comm in (self._local, self._global):
            if comm is not None:
                comm.Free()
        _open_communicators.discard(self)

    def _swap(self, sends: Mapping[int, Sequence[Tensor]], number: int, with_root: bool) -> dict[int, list[Tensor]]:
        """Exchange lengths from peer to peer, to find missing workers, then all data at once."""
        for peer, tensors in sends.items():
            head = torch.tensor([number, *map(len, tensors)])
            with _naming(peer):
                self._sent.append((self._global.Isend([head.numpy(), MPI.INT64_T], peer, _HEAD_TAG), head))
        # a collective cannot be cancelled: it starts once every peer has been heard of in this call
        lengths = self._receive_heads(sends, number)
        graph = self._global if with_root else self._local
        peers = self.links if with_root else sorted(self.peers)
        assert graph is not None, "a coordinator has no neighbours"
        send_counts = [sum(map(len, sends.get(peer, ()))) for peer in peers]
        receive_counts = [sum(lengths.get(peer, ())) for peer in peers]
        sent = torch.cat([_EMPTY, *chain.from_iterable(sends.get(peer, ()) for peer in peers)])
        received = torch.empty(sum(receive_counts), dtype=torch.uint8)
        request = self._request = graph.Ineighbor_alltoallv(
            [sent.numpy(), send_counts, MPI.BYTE], [received.numpy(), receive_counts, MPI.BYTE]
        )
        # all or none are missing in a collective; a worker without peers waits for its own part
        self._wait(lambda: [] if request.Test() else peers or [self.rank])
        blocks = dict(zip(peers, received.split(receive_counts), strict=True))
        return {peer: list(blocks[peer].split(sizes)) for peer, sizes in lengths.items()}

    def _receive_heads(self, peers: Iterable[int], number: int) -> dict[int, list[int]]:
        """Return the lengths of each worker's messages of this call; `WorkerError` if one is at another call."""
        heads: dict[int, list[int]] = {}
        peers = list(peers)

        def missing() -> list[int]:
            for peer in peers:
                if peer not in heads and (head := self._receive_head(peer)) is not None:
                    heads[peer] = head
            return [peer for peer in peers if peer not in heads]

        self._wait(missing)
        for peer, (peer_number, *_) in heads.items():
            if peer_number != number:
                raise out_of_step_error(peer, peer_number, number)
        return {peer: [_checked(size, self._max_bytes, peer) for size in heads[peer][1:]] for peer in peers}

    def _receive_head(self, peer: int) -> list[int] | None:
        """Return the next head of a worker; None if none has arrived."""
        status = MPI.Status()
        with _naming(peer):
            # matched: the length is known, and checked, before memory is allocated for exactly this message
            message = self._global.Improbe(peer, _HEAD_TAG, status)
            if message is None:
                return None
            head = torch.empty(_checked(status.Get_count(MPI.INT64_T), _MAX_MESSAGES, peer), dtype=torch.int64)
            message.Recv([head.numpy(), MPI.INT64_T])
            return head.tolist()

    def _has_unsent(self) -> bool:
        """Return whether MPI still reads a message of this worker; release the others."""
        self._sent = [(request, tensor) for request, tensor in self._sent if not request.Test()]
        return bool(self._sent)

    def _wait(self, missing: Callable[[], list[int]]) -> None:
        self._has_unsent()  # releases what was sent
        _wait(missing, self._timeout_s, self._stopped)


@contextmanager
def _naming(peer: int) -> Iterator[None]:
    """Raise an MPI error of a message as the failure of the worker at its other end."""
    try:
        yield
    except MPI.Exception as error:
        raise failed_error(peer, error) from error


def _wait(missing: Callable[[], list[int]], timeout_s: float, stopped: Callable[[], bool] = lambda: False) -> None:
    wait_until(missing, timeout_s, stopped, Backoff(*_PAUSE_S))


def _graph(members: Sequence[int], neighbours: Sequence[int], tag: int) -> Any:
    """Return a communicator of some processes of WORLD, where each has its neighbours. Collective among them."""
    # by its group, so that only the members call: others may have failed, or train in an earlier membership
    flat = MPI.COMM_WORLD.Create_group(MPI.COMM_WORLD.Get_group().Incl(list(members)), tag)
    graph = flat.Create_dist_graph_adjacent(neighbours, neighbours)
    flat.Free()
    return graph


def _checked(size: int, max_size: int, worker: int) -> int:
    """Return the size of a message of another worker; `WorkerError` unless it is 0 to `max_size`."""
    if 0 <= size <= max_size:
        return size
    raise WorkerError(f"worker {worker} sends a message of size {size}; the limit is {max_size}", worker)


def _wait_for_all(members: Sequence[int], rank: int, tag: int, timeout_s: float, stopped: Callable[[], bool]) -> None:
    """Wait until all processes are present, by messages without content."""
    others = {worker: member for worker, member in enumerate(members) if worker != rank}
    nothing = [_EMPTY.numpy(), MPI.BYTE]
    awaited = {  # by worker: a send and a receive
        worker: [MPI.COMM_WORLD.Isend(nothing, member, tag), MPI.COMM_WORLD.Irecv(nothing, member, tag)]
        for worker, member in others.items()
    }
    try:
        _wait(lambda: [worker for worker, pair in awaited.items() if not MPI.Request.Testall(pair)], timeout_s, stopped)
    except BaseException:
        # MPI would write into these buffers whenever the other process appears
        for _, receive in awaited.values():
            if receive != MPI.REQUEST_NULL:
                receive.Cancel()
        raise
