"""What the workers of a grid send one another at the edge of a generation: the cells that others read, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from paragan.coevolution.standing import Centre, Standing
from paragan.coevolution.topology import Topology

_PER_CELL = 3  # messages


class Exchanges(Protocol):
    """What is used of `transports._communicator.Communicator`."""

    rank: int
    size: int

    def exchange(self, sends: Mapping[int, Sequence[Tensor]]) -> dict[int, list[Tensor]]: ...


def sent(owners: Sequence[int], topology: Topology, spare: bool = True) -> dict[tuple[int, int], list[int]]:
    """(from, to) -> the cells that go there, in order. A way back is always named, perhaps with nothing to carry.

    spare: a cell that nobody else reads goes to the next worker all the same, so that whoever dies, somebody has it.
    """
    workers = sorted(set(owners))
    ways: dict[tuple[int, int], set[int]] = {}
    for cell, near in enumerate(topology.neighbours):
        for other in near:
            if owners[other] != owners[cell]:
                ways.setdefault((owners[other], owners[cell]), set()).add(other)
    if spare and len(workers) > 1:
        read = {cell for cells in ways.values() for cell in cells}
        for cell, owner in enumerate(owners):
            if cell not in read:
                after = workers[(workers.index(owner) + 1) % len(workers)]
                ways.setdefault((owner, after), set()).add(cell)
    for a, b in list(ways):
        ways.setdefault((b, a), set())
    return {way: sorted(cells) for way, cells in ways.items()}


def peers(owners: Sequence[int], topology: Topology, rank: int) -> list[int]:
    """Whom a worker exchanges with."""
    return sorted(b for a, b in sent(owners, topology) if a == rank)


class Halo:
    """Fulfils `coevolution.population.Exchange`. owners: by cell, the rank of its worker. like: of genomes that come.

    mine: what is to be sent. copies: of the cells that have come here last, by number.
    """

    def __init__(
        self,
        communicator: Exchanges,
        owners: Sequence[int],
        topology: Callable[[int], Topology],
        like: Centre,
        mine: Callable[[], Sequence[Standing]],
    ) -> None:
        self.communicator, self.owners, self.topology = communicator, owners, topology
        self.like, self.mine = like, mine
        self.copies: dict[int, Standing] = {}

    def gather(self, mine: Mapping[int, Centre], reach: Sequence[int], generation: int) -> dict[int, Centre]:
        rank, ways = self.communicator.rank, sent(self.owners, self.topology(generation))
        packed = {cell.number: cell.packed() for cell in self.mine()}
        sends = {b: [part for cell in cells for part in packed[cell]] for (a, b), cells in ways.items() if a == rank}
        came = self.communicator.exchange(sends)
        copies = {}
        for (a, b), cells in ways.items():
            if b != rank:
                continue
            parts = came[a]
            for place, cell in enumerate(cells):
                copies[cell] = Standing.unpacked(parts[_PER_CELL * place : _PER_CELL * (place + 1)], self.like)
        self.copies = copies
        return {cell: mine[cell] if cell in mine else copies[cell].centre for cell in reach}
