"""Messages between neighbours over MPI, all at once. `mpi_communicator` prepares MPI, and imports this file then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from mpi4py import MPI
from torch import Tensor

_PADDING = torch.zeros(8, dtype=torch.uint8)  # messages begin at multiples of 8 bytes: readers copy others


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


def _with_padding(messages: Sequence[Tensor]) -> list[Tensor]:
    return [part for message in messages for part in (message, _PADDING[: -len(message) % 8])]


def _padded_sizes(lengths: Sequence[int]) -> list[int]:
    return [size for length in lengths for size in (length, -length % 8)]
