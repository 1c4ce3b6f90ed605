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


def moves(owners: Sequence[int], sources: Sequence[int | None]) -> dict[tuple[int, int], list[int]]:
    """(from, to) -> cells that change hands, with every way back. sources: by cell, who has it; None: nobody yet."""
    ways: dict[tuple[int, int], list[int]] = {}
    for cell, (source, owner) in enumerate(zip(sources, owners, strict=True)):
        if source is not None and source != owner:
            ways.setdefault((source, owner), []).append(cell)
            ways.setdefault((owner, source), [])
    return ways


def moved(
    communicator: Exchanges,
    ways: Mapping[tuple[int, int], Sequence[int]],
    held: Mapping[int, Standing],
    like: Callable[[], Centre],
) -> dict[int, Standing]:
    """Send the cells that go elsewhere, and take those that come. held: here, by number."""
    rank = communicator.rank
    sends = {b: [part for cell in cells for part in held[cell].packed()] for (a, b), cells in ways.items() if a == rank}
    came = communicator.exchange(sends)
    return {
        cell: Standing.unpacked(came[a][_PER_CELL * place : _PER_CELL * (place + 1)], like())
        for (a, b), cells in ways.items()
        if b == rank
        for place, cell in enumerate(cells)
    }


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
        ways, here = sent(self.owners, self.topology(generation)), {cell.number: cell for cell in self.mine()}
        self.copies = moved(self.communicator, ways, here, lambda: self.like)
        return {cell: mine[cell] if cell in mine else self.copies[cell].centre for cell in reach}
