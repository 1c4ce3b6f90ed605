"""Communicators of the processes of one mpiexec, and their MPI groups.

WORLD is all processes, LOCAL those that train, GLOBAL those and the one that gathers. Neighbours
exchange by a neighbourhood collective on LOCAL. All else goes from one worker to another, on
GLOBAL. Importing this file initialises MPI.

Source: Perez et al. 2020, for the groups. LOCAL has a graph instead of their Cartesian topology,
since workers with several cells need not form a torus.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from paragan.extensions.grid.transports import mpi_runtime
from paragan.extensions.grid.transports.communicator import Communicator
from paragan.extensions.grid.transports.mpi_runtime import MPI, PAUSE_S, MpiChannel, PolledReceiveBuffer
from paragan.extensions.grid.transports.waiting import Backoff, check_size, never_stopped, wait_until

_FAREWELL_S = 0.5
_TEXT_TAG = (1 << 15) - 1  # largest tag of every MPI; memberships use lower ones
_MAX_TEXT_BYTES = 1 << 16
_EMPTY = torch.empty(0, dtype=torch.uint8)
_PADDING = torch.zeros(8, dtype=torch.uint8)  # messages begin at multiples of 8 bytes: readers copy others


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
        _wait(lambda: MPI.Request.Testall(sent), timeout_s)

    def receive_text(self, timeout_s: float) -> str:
        """Return the text of process 0. Raises `WorkerError` if none arrives in time."""
        status = MPI.Status()
        _wait(lambda: MPI.COMM_WORLD.Iprobe(0, _TEXT_TAG, status), timeout_s)
        data = bytearray(check_size(status.Get_count(MPI.BYTE), _MAX_TEXT_BYTES, 0))
        MPI.COMM_WORLD.Recv([data, MPI.BYTE], 0, _TEXT_TAG)
        return data.decode()

    def join(
        self,
        name: str,
        workers: Sequence[int],
        peers: Iterable[int],
        *,
        coordinator: int | None = None,
        most_bytes: int,
        timeout_s: float = 300.0,
        stopped: Callable[[], bool] = never_stopped,
    ) -> MpiCommunicator:
        """Return the communicator of a new membership, when all its processes are present.

        Collective: every process of the membership must call this, and no other. name: unique to
        the membership. workers: their ranks in WORLD, by rank as a worker. peers: the workers that
        this one exchanges with. coordinator: a process in WORLD that does not train and gathers
        instead of worker 0. It calls with no peers, its `rank` is the number of workers, and it
        takes part in `gather` and `close` only.
        """
        members = [*workers, *([] if coordinator is None else [coordinator])]
        peers = sorted(peers)
        rank = members.index(self.rank)
        tag = zlib.crc32(name.encode()) % _TEXT_TAG
        mpi_runtime.open_communicators.add(name)
        # what follows waits without a time-out, for processes that are present
        _wait_for_all(members, rank, tag, timeout_s, stopped)
        group = MPI.COMM_WORLD.Get_group()
        global_comm = MPI.COMM_WORLD.Create_group(group.Incl(members), tag)
        local = None
        if rank < len(workers):
            flat = MPI.COMM_WORLD.Create_group(group.Incl(list(workers)), tag)
            local = flat.Create_dist_graph_adjacent(peers, peers)
            flat.Free()
        mpi_runtime.open_communicators.discard(name)
        arrivals = PolledReceiveBuffer(timeout_s, stopped)
        return MpiCommunicator(global_comm, local, len(workers), peers, most_bytes, arrivals)


class NeighbourExchange:
    """Messages to and from all neighbours at once (`MPI_Ineighbor_alltoallv`).

    graph: communicator with a symmetric graph of the workers. sends_to, receives_from: in its order.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self.sends_to: list[int] = list(graph.outedges)
        self.receives_from: list[int] = list(graph.inedges)
        self._sizes: dict[int, list[int]] = {}  # of each message and its padding, by worker
        self._send_buffer = torch.empty(0, dtype=torch.uint8)  # reused
        self._receive_buffer = _PADDING
        self._request = MPI.REQUEST_NULL  # holds both buffers until the exchange is complete

    def start(self, sends: Mapping[int, Sequence[Tensor]], lengths: Mapping[int, Sequence[int]]) -> Any:
        """Start to send messages, and to receive some of these lengths, both by worker; return MPI's request."""
        parts = {peer: _with_padding(sends.get(peer, ())) for peer in self.sends_to}
        self._sizes = {peer: _padded_sizes(lengths[peer]) for peer in self.receives_from if peer in lengths}
        send_counts = [sum(map(len, parts[peer])) for peer in self.sends_to]
        receive_counts = [sum(self._sizes.get(peer, ())) for peer in self.receives_from]
        self._receive_buffer = torch.empty(sum(receive_counts), dtype=torch.uint8)
        if len(self._send_buffer) < sum(send_counts):
            self._send_buffer = torch.empty(sum(send_counts), dtype=torch.uint8)
        send_buffer = self._send_buffer[: sum(send_counts)]
        torch.cat([_PADDING[:0], *chain(*parts.values())], out=send_buffer)
        sent = [send_buffer.numpy(), send_counts, MPI.BYTE]
        self._request = self._graph.Ineighbor_alltoallv(sent, [self._receive_buffer.numpy(), receive_counts, MPI.BYTE])
        return self._request

    def received(self) -> dict[int, list[Tensor]]:
        """Return the messages of a complete exchange by worker, as views of one buffer."""
        blocks = self._receive_buffer.split([sum(sizes) for sizes in self._sizes.values()])
        by_worker = zip(self._sizes.items(), blocks, strict=True)
        return {peer: list(block.split(sizes)[::2]) for (peer, sizes), block in by_worker}


class MpiCommunicator(Communicator):
    """`Communicator` over MPI.

    global_comm: GLOBAL. local: LOCAL, with its graph; None if this process does not train.
    mpiexec ends all processes if one is killed; one that hangs is found by the time-out, or by
    `stopped`.
    """

    def __init__(
        self,
        global_comm: Any,
        local: Any,
        size: int,
        peers: Sequence[int],
        most_bytes: int,
        arrivals: PolledReceiveBuffer,
    ) -> None:
        root = 0 if global_comm.size == size else size
        super().__init__(global_comm.rank, size, peers, arrivals, root)
        self._global = global_comm
        self._local = local
        self._neighbours = None if local is None else NeighbourExchange(local)
        self._connections: dict[int, MpiChannel] = {
            peer: MpiChannel(peer, arrivals, global_comm, most_bytes) for peer in self.links
        }
        arrivals.progress = self._progress
        mpi_runtime.open_communicators.add(self)

    def exchange(self, sends: Mapping[int, Sequence[Tensor]]) -> dict[int, list[Tensor]]:
        """Exchange lengths from peer to peer, to find missing workers, then all data at once."""
        neighbours = self._neighbours
        assert neighbours is not None, "a coordinator has no neighbours"
        self._num_exchanges += 1
        for peer, tensors in sends.items():
            self._connections[peer].send_lengths(self._num_exchanges, tensors)
        headers = self._take(sends, self._num_exchanges)
        request = neighbours.start(sends, {peer: lengths.tolist() for peer, (lengths,) in headers.items()})
        with self._recording_failure():
            self._arrivals.wait_until(lambda: [] if request.Test() else sorted(self.peers) or [self.rank])
        return neighbours.received()

    def _progress(self) -> None:
        for connection in self._connections.values():
            connection.progress()

    def _is_idle(self) -> bool:
        return all(connection.is_idle for connection in self._connections.values())

    def _leave(self, orderly: bool) -> None:
        """Close the connections. After `abort`, MPI does not free this communicator's memory."""
        deadline = time.monotonic() + (self._arrivals.timeout_s if orderly else _FAREWELL_S)
        pause = Backoff(*PAUSE_S)
        while not self._is_idle() and time.monotonic() < deadline:
            self._progress()
            pause(_FAREWELL_S)
        if orderly and self._is_idle():
            for comm in (self._local, self._global):
                if comm is not None:
                    comm.Free()
            mpi_runtime.open_communicators.discard(self)
        else:
            for connection in self._connections.values():
                connection.give_up()


def _wait(condition: Callable[[], bool], timeout_s: float) -> None:
    """Wait for process 0; `WorkerError` at the time-out."""
    wait_until(lambda: [] if condition() else [0], timeout_s, never_stopped, Backoff(*PAUSE_S))


def _wait_for_all(members: Sequence[int], rank: int, tag: int, timeout_s: float, stopped: Callable[[], bool]) -> None:
    """Wait until all processes are present, by messages without content."""
    others = {worker: member for worker, member in enumerate(members) if worker != rank}
    nothing = [_EMPTY.numpy(), MPI.BYTE]
    awaited = {
        worker: [MPI.COMM_WORLD.Isend(nothing, member, tag), MPI.COMM_WORLD.Irecv(nothing, member, tag)]
        for worker, member in others.items()
    }
    try:
        wait_until(
            lambda: [worker for worker, both in awaited.items() if not MPI.Request.Testall(both)],
            timeout_s,
            stopped,
            Backoff(*PAUSE_S),
        )
    except BaseException:
        for _, coming in awaited.values():
            if coming != MPI.REQUEST_NULL:
                coming.Cancel()
        raise


def _with_padding(messages: Sequence[Tensor]) -> list[Tensor]:
    return [part for message in messages for part in (message, _PADDING[: -len(message) % 8])]


def _padded_sizes(lengths: Sequence[int]) -> list[int]:
    return [size for length in lengths for size in (length, -length % 8)]
