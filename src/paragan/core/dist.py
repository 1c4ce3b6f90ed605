"""The ranks of a run, seen from one of them. A process alone is the only rank of its world.

Every wait ends with the group's time-out. What travels is buffers and JSON: nothing is ever unpickled.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paragan.core.types import Rows


@dataclass(frozen=True)
class World:
    """rank of size. group: collectives on `device`; control: the same ranks on the host (gloo). None: a process alone.

    local_rank, local_size: among the ranks of this host. sent: bytes by kind (`parameters`, `norm`, `control`) that
    this rank gave to collectives, counted where they are given; those inside FSDP2 are torch's and not counted.
    meshes: of these ranks, each made once: its groups have connections and threads of their own.
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
    meshes: dict[Any, Any] = field(default_factory=dict, compare=False)

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that writes and speaks for all."""
        return self.rank == 0

    def share(self, total: int) -> tuple[int, int]:
        """(first, count) of this rank's rows of a global batch; counts differ by at most one."""
        rows = Rows(0, 0, total, total).shares(self.size)[self.rank]
        return rows.first, rows.count

    def sum(self, values: Tensor) -> Tensor:
        """Over all ranks, in place; equal bits on all of them."""
        if self.size > 1:
            self.count("control", values)
            dist.all_reduce(values, group=self.group)
        return values

    def any(self, flag: bool) -> bool:
        """Whether some rank says so."""
        return bool(self.all_reduce_max(int(flag)))

    def all_reduce_max(self, number: int) -> int:
        """The largest number that a rank has."""
        if self.size == 1:
            return number
        said = torch.tensor(number)
        self.count("control", said)
        dist.all_reduce(said, dist.ReduceOp.MAX, group=self.control)
        return int(said)

    def gather(self, value: Any) -> list[Any]:
        """One JSON value of each rank, by rank, on every rank."""
        if self.size == 1:
            return [value]
        mine = torch.frombuffer(bytearray(json.dumps(value).encode() or b" "), dtype=torch.uint8)
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(mine)
        dist.all_reduce(lengths, group=self.control)
        padded = torch.zeros(int(lengths.max()), dtype=torch.uint8)
        padded[: len(mine)] = mine
        self.count("control", lengths, padded)
        all_of_them = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(all_of_them, padded, group=self.control)
        return [json.loads(bytes(t[:n].tolist())) for t, n in zip(all_of_them, lengths.tolist(), strict=True)]

    def gather_tensors(self, tensor: Tensor) -> list[Tensor]:
        """A host tensor of each rank, by rank; they may differ in their first axis only."""
        if self.size == 1:
            return [tensor]
        lengths = self.gather(len(tensor))
        padded = tensor.new_zeros(max(lengths), *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        all_of_them = [torch.empty_like(padded) for _ in range(self.size)]
        self.count("control", padded)
        dist.all_gather(all_of_them, padded, group=self.control)
        return [piece[:length] for piece, length in zip(all_of_them, lengths, strict=True)]

    def broadcast_from_main(self, tensors: Iterable[Tensor]) -> None:
        """Rank 0's values of host tensors, into the same tensors everywhere."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, group_src=0, group=self.control)

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Rank 0's values, into the same tensor everywhere. The tensor lies on `device`."""
        if self.size > 1:
            dist.broadcast(tensor, group_src=0, group=self.group)
        return tensor

    def barrier(self) -> None:
        """Until every rank has come here."""
        if self.size > 1:
            dist.all_reduce(torch.zeros(1), group=self.control)

    def count(self, kind: str, *tensors: Tensor) -> None:
        """Tell what is about to be given to a collective."""
        self.sent[kind] += sum(t.numel() * t.element_size() for t in tensors)


ALONE = World()


def serve_store(host: str, port: int, patience: timedelta) -> dist.TCPStore:
    """A store that listens on this address alone; torch's own listens on every interface.

    port 0: a free one. Raises `OSError` where the address is not of this host, or the port is taken.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    server = socket.create_server(address[:2], family=family)
    port, descriptor = server.getsockname()[1], server.detach()
    return dist.TCPStore(host, port, None, True, patience, wait_for_workers=False, master_listen_fd=descriptor)
