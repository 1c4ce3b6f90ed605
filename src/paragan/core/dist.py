"""Ranks of a run, and the bytes of their collectives; a process without a process group is the only rank of its world.

Every wait ends with the group's time-out. Only buffers and JSON are sent, never pickles.
"""

import json
import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paragan.core.phases import Phase, phase
from paragan.core.types import Rows


class Collective(Enum):
    """Kind of operation that a tensor is passed to.

    ALL_REDUCE, BROADCAST: the whole tensor on every rank. ALL_GATHER: this rank's piece of the result.
    REDUCE_SCATTER: the whole tensor, of which a rank receives a piece. LINK: a message to one rank.
    """

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    LINK = "link"


@dataclass(frozen=True, kw_only=True)
class RankExchange:
    """A collective of the ranks of one player.

    num_bytes: of the whole tensor. every: updates between two exchanges. count: collectives that share these bytes,
    each with its own latency. overlaps: whether it runs during the backward pass, in buckets.
    """

    kind: Collective
    num_bytes: int
    every: int = 1
    count: int = 1
    overlaps: bool = False


def link_bytes(collective: Collective, num_bytes: float, num_ranks: int) -> float:
    """Return the bytes that one of `num_ranks` ranks sends on its link; over all ranks, their sum.

    num_bytes: passed by this rank. A ring all-reduce of B bytes sends 2 (N - 1) B over all N ranks
    (Patarasuk & Yuan 2009); its two halves, reduce-scatter and all-gather, send (N - 1) B each; a broadcast sends B
    to each of the others, divided evenly over all ranks: the fewest bytes where all links are used evenly.
    """
    match collective:
        case Collective.ALL_REDUCE:
            return 2 * (num_ranks - 1) * num_bytes / num_ranks
        case Collective.ALL_GATHER:
            return (num_ranks - 1) * num_bytes
        case Collective.REDUCE_SCATTER | Collective.BROADCAST:
            return (num_ranks - 1) * num_bytes / num_ranks
        case Collective.LINK:
            return num_bytes


@dataclass(frozen=True, kw_only=True)
class World:
    """A group of ranks, and this process's rank among them.

    group: for collectives on `device`; control: the same ranks on the host (gloo); None in a single process.
    local_rank, local_size: among the ranks of this host. sent: bytes by kind that this rank passed to collectives
    and links: `parameters` (also gradients), `norm` (statistics), `activations` (rows of split layers), `states`
    and `fakes` (of asynchronous players), `control` (the rest). on_links: the bytes that travel for them, by
    `link_bytes`. Neither has what torch sends to set up a group or a wrapper (DDP broadcasts its weights once), nor
    keep-alive messages. store: of keys and values, for these ranks. meshes: device meshes of these ranks, created
    once each, because every mesh has separate connections and threads.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    device: torch.device = torch.device("cpu")
    group: dist.ProcessGroup | None = None
    control: dist.ProcessGroup | None = None
    store: dist.Store | None = None
    sent: Counter[str] = field(default_factory=Counter, compare=False)
    on_links: dict[str, float] = field(default_factory=dict, compare=False)
    meshes: dict[Any, Any] = field(default_factory=dict, compare=False)

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.rank == 0

    def share(self, total: int) -> tuple[int, int]:
        """Return (first, count) of this rank's rows of a batch; counts differ by at most one."""
        rows = Rows(step=0, first=0, count=total, total=total).shares(self.size)[self.rank]
        return rows.first, rows.count

    @phase(Phase.COMMUNICATION)
    def sum(self, values: Tensor) -> Tensor:
        """Sum over all ranks, in place; bit-equal on all of them. Collective."""
        if self.size > 1:
            self.count("control", values)
            dist.all_reduce(values, group=self.group)
        return values

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on some rank. Collective."""
        return bool(self.all_reduce_max(int(flag)))

    @phase(Phase.COMMUNICATION)
    def all_reduce_max(self, number: int) -> int:
        """Return the largest number over all ranks. Collective."""
        if self.size == 1:
            return number
        largest = torch.tensor(number)
        self.count("control", largest)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.control)
        return int(largest)

    def gather(self, value: Any) -> list[Any]:
        """Return one JSON value of each rank, by rank, on every rank. Collective."""
        if self.size == 1:
            return [value]
        encoded = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        return [json.loads(bytes(text.tolist())) for text in self.gather_tensors(encoded)]

    @phase(Phase.COMMUNICATION)
    def gather_tensors(self, tensor: Tensor) -> list[Tensor]:
        """Return each rank's host tensor; they may differ only in their first axis. Collective."""
        if self.size == 1:
            return [tensor]
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(tensor)
        dist.all_reduce(lengths, group=self.control)
        padded = tensor.new_zeros(int(lengths.max()), *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        gathered = [torch.empty_like(padded) for _ in range(self.size)]
        self.count("control", lengths)
        self.count("control", padded, collective=Collective.ALL_GATHER)
        dist.all_gather(gathered, padded, group=self.control)
        return [piece[:length] for piece, length in zip(gathered, lengths.tolist(), strict=True)]

    @phase(Phase.COMMUNICATION)
    def broadcast_from_main(self, tensors: Iterable[Tensor]) -> None:
        """Copy rank 0's host tensors into the same tensors of all ranks. Collective."""
        if self.size > 1:
            for tensor in tensors:
                self.count("control", tensor, collective=Collective.BROADCAST)
                dist.broadcast(tensor, group_src=0, group=self.control)

    @phase(Phase.COMMUNICATION)
    def broadcast(self, tensor: Tensor, kind: str = "control") -> Tensor:
        """Copy rank 0's tensor, on `device`, into the same tensor of all ranks. Collective."""
        if self.size > 1:
            self.count(kind, tensor, collective=Collective.BROADCAST)
            dist.broadcast(tensor, group_src=0, group=self.group)
        return tensor

    @phase(Phase.COMMUNICATION)
    def barrier(self) -> None:
        """Wait until every rank has called this."""
        if self.size > 1:
            number = torch.zeros(1)
            self.count("control", number)
            dist.all_reduce(number, group=self.control)

    def count(
        self, kind: str, *tensors: Tensor, collective: Collective = Collective.ALL_REDUCE, num_ranks: int | None = None
    ) -> None:
        """Count the bytes of tensors that are about to be passed to a collective.

        num_ranks: that take part; None: all.
        """
        num_bytes = sum(t.numel() * t.element_size() for t in tensors)
        self.count_bytes(kind, num_bytes, collective, num_ranks)

    def count_bytes(
        self, kind: str, num_bytes: int, collective: Collective = Collective.ALL_REDUCE, num_ranks: int | None = None
    ) -> None:
        """Count bytes that are about to be passed to a collective or a link, as `count` does."""
        self.sent[kind] += num_bytes
        travelling = link_bytes(collective, num_bytes, num_ranks or self.size)
        self.on_links[kind] = self.on_links.get(kind, 0.0) + travelling


ALONE = World()


def serve_store(host: str, port: int, patience: timedelta) -> dist.TCPStore:
    """Start a store that listens only on this address; torch's default listens on every interface.

    port: 0 picks a free one. Raises `OSError` if the address is not local, or the port is in use.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    server = socket.create_server(address[:2], family=family)
    port = server.getsockname()[1]
    descriptor = server.detach()
    return dist.TCPStore(host, port, None, True, patience, wait_for_workers=False, master_listen_fd=descriptor)
