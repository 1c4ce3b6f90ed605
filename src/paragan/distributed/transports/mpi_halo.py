"""Neighbour collective of MPI workers: the exchange of halos on a topology. Initialises MPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from paragan.distributed.transports.mpi_runtime import MPI

_ALIGNED = 8
_EMPTY = torch.empty(0, dtype=torch.uint8)


class Halo:
    """The neighbour collective of a topology, and the buffers that MPI uses meanwhile.

    On a torus of width two, both neighbours in a row are the same worker, and on one of width one
    this worker itself: each neighbour uses one place, which need not be the same at both ends.

    local: a communicator with a topology. rank: of this worker.
    """

    def __init__(self, local: Any, rank: int) -> None:
        self._local = local
        self._near = near = list(local.outedges)
        self._gives = [peer != rank and peer not in near[:place] for place, peer in enumerate(near)]
        found = torch.zeros(len(near), dtype=torch.uint8)
        local.Neighbor_alltoall(torch.tensor(self._gives, dtype=torch.uint8).numpy(), found.numpy())
        self._takes = found.bool().tolist()
        self._out = _EMPTY  # reused buffer of concatenated messages
        self._given: dict[int, Tensor] = {}
        self._taken: dict[int, Tensor] = {}
        self._places: dict[int, list[slice]] = {}
        self._request: Any = None

    def start(self, sends: Mapping[int, Sequence[Tensor]], lengths: Mapping[int, Sequence[int]]) -> None:
        """Start to send messages, and to receive those of these lengths, both by worker."""
        layouts = {peer: _layout(sizes) for peer, sizes in lengths.items()}
        self._places = {peer: places for peer, (_, places) in layouts.items()}
        self._taken = {peer: torch.empty(total, dtype=torch.uint8) for peer, (total, _) in layouts.items()}
        self._given = self._concatenate(sends)
        given = self._describe(self._given, self._gives)
        self._request = self._local.Ineighbor_alltoallw(given, self._describe(self._taken, self._takes))

    def is_complete(self) -> bool:
        """Return whether all messages have been sent and received."""
        return bool(self._request.Test())

    def take(self) -> dict[int, list[Tensor]]:
        """Return the received messages by worker, and release the buffers."""
        taken = self._taken
        self._taken = {}
        self._given = {}
        return {peer: [taken[peer][at] for at in places] for peer, places in self._places.items()}

    def _concatenate(self, sends: Mapping[int, Sequence[Tensor]]) -> dict[int, Tensor]:
        """Copy each worker's messages into one buffer, shared by workers that receive the same.

        MPICH sends scattered ones in many small steps; a copy into a reused buffer costs a tenth of
        that.
        """
        lists = {tuple(map(id, tensors)): tensors for tensors in sends.values()}
        layouts = {key: _layout([len(t) for t in tensors]) for key, tensors in lists.items()}
        room = sum(total for total, _ in layouts.values())
        if len(self._out) < room:
            self._out = torch.empty(room, dtype=torch.uint8)
        copies = dict[tuple[int, ...], Tensor]()
        begin = 0
        for key, (total, places) in layouts.items():
            copies[key] = self._out[begin : begin + total]
            begin += total
            for tensor, place in zip(lists[key], places, strict=True):
                copies[key][place] = tensor
        return {peer: copies[tuple(map(id, tensors))] for peer, tensors in sends.items()}

    def _describe(self, data: Mapping[int, Tensor], used: Sequence[bool]) -> list[Any]:
        """Describe buffers by address, so that one tensor for all neighbours is not copied."""
        pairs = zip(self._near, used, strict=True)
        buffers = [data.get(peer, _EMPTY) if use else _EMPTY for peer, use in pairs]
        addresses = [t.data_ptr() for t in buffers]
        return [MPI.BOTTOM, [len(t) for t in buffers], addresses, [MPI.BYTE] * len(buffers)]


def _layout(sizes: Sequence[int]) -> tuple[int, list[slice]]:
    """Return the size and slices of concatenated messages, each aligned to eight bytes."""
    begins = [0, *accumulate(-(-size // _ALIGNED) * _ALIGNED for size in sizes)]
    ends = zip(begins, sizes, strict=False)
    return begins[-1], [slice(begin, begin + size) for begin, size in ends]
