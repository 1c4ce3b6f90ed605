"""What the workers of a grid send one another at the edge of a generation: the cells that others read, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from paragan.coevolution.cell_state import CellState, Centre
from paragan.coevolution.topology import Topology

Places = Mapping[int, tuple[int, int]]
Swap = Callable[[Mapping[int, Sequence[Tensor]]], dict[int, list[Tensor]]]


class ExchangeCommunicator(Protocol):
    """What is used of `transports._communicator.Communicator`."""

    rank: int
    size: int

    def exchange(self, sends: Mapping[int, Sequence[Tensor]]) -> dict[int, list[Tensor]]: ...

    def post(self, sends: Mapping[int, Sequence[Tensor]]) -> None: ...

    def newest(self) -> dict[int, list[Tensor]]: ...

    def wait(self, peer: int, timeout_s: float | None = None) -> None: ...


def exchange_routes(owners: Sequence[int], topology: Topology, spare: bool = True) -> dict[tuple[int, int], list[int]]:
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


def transfer_routes(owners: Sequence[int], sources: Sequence[int | None]) -> dict[tuple[int, int], list[int]]:
    """(from, to) -> cells that change hands, with every way back. sources: by cell, who has it; None: nobody yet."""
    ways: dict[tuple[int, int], list[int]] = {}
    for cell, (source, owner) in enumerate(zip(sources, owners, strict=True)):
        if source is not None and source != owner:
            ways.setdefault((source, owner), []).append(cell)
            ways.setdefault((owner, source), [])
    return ways


def transfer_cells(
    swap: Swap,
    rank: int,
    ways: Mapping[tuple[int, int], Sequence[int]],
    held: Mapping[int, CellState],
    like: Callable[[], Centre],
    device: torch.device | None = None,
) -> dict[int, CellState]:
    """Send the cells that go elsewhere, and take those that come. held: here, by number. device: as `packed` has it."""
    came = swap({b: pack_cells(cells, held, device) for (a, b), cells in ways.items() if a == rank})
    found: dict[int, CellState] = {}
    for (a, b), cells in ways.items():
        if b == rank:
            found |= unpack_cells(cells, came[a], like())
    return found


def pack_cells(cells: Sequence[int], held: Mapping[int, CellState], device: torch.device | None = None) -> list[Tensor]:
    """As messages, one cell after another. device: what lies on it goes from there; None: all goes from the host."""
    return [part for cell in cells for part in held[cell].pack(device)]


def unpack_cells(cells: Sequence[int], messages: Sequence[Tensor], like: Centre) -> dict[int, CellState]:
    """What `packed` made of these cells. `CheckpointError` for anything else."""
    each = len(messages) // max(1, len(cells))
    return {
        cell: CellState.unpack(messages[each * place : each * (place + 1)], like) for place, cell in enumerate(cells)
    }


def torus_shape(ways: Iterable[tuple[int, int]], size: int) -> tuple[int, int] | None:
    """Rows and columns on which all who exchange are neighbours, the squarest of them; None: on no torus."""
    pairs = set(ways)
    for rows, columns in sorted(((n, size // n) for n in range(1, size + 1) if size % n == 0), key=lambda s: max(s)):
        places = {rank: divmod(rank, columns) for rank in range(size)}

        def near(a: int, b: int, rows: int = rows, columns: int = columns, places: Places = places) -> bool:
            down, across = (places[a][0] - places[b][0]) % rows, (places[a][1] - places[b][1]) % columns
            return (min(down, rows - down), min(across, columns - across)) in ((0, 1), (1, 0))

        if all(near(a, b) for a, b in pairs):
            return rows, columns
    return None


class GenomeExchange:
    """Fulfils `coevolution.population.Exchange`, in lock-step. owners: by cell, the rank of its worker. like: genomes
    of the grid's kind. mine: what is to be sent. device: from which it goes, if the communicator can; None: the host.

    copies: of the cells that have come here since somebody took them from it, by generation and number.
    """

    def __init__(
        self,
        communicator: ExchangeCommunicator,
        owners: Sequence[int],
        topology: Callable[[int], Topology],
        like: Centre,
        mine: Callable[[], Sequence[CellState]],
        device: torch.device | None = None,
    ) -> None:
        self.communicator, self.owners, self.topology = communicator, owners, topology
        self.like, self.mine, self.device = like, mine, device
        self.copies: dict[int, dict[int, CellState]] = {}

    def gather(self, mine: Mapping[int, Centre], reach: Sequence[int], generation: int) -> dict[int, Centre]:
        ways, here = (
            exchange_routes(self.owners, self.topology(generation)),
            {cell.number: cell for cell in self.mine()},
        )
        came = transfer_cells(
            self.communicator.exchange, self.communicator.rank, ways, here, lambda: self.like, self.device
        )
        self.copies[generation] = came
        return {cell: mine[cell] if cell in mine else came[cell].centre for cell in reach}

    def progress(self) -> None:
        """Nothing comes meanwhile."""


class AsyncGenomeExchange(GenomeExchange):
    """Asynchronous exchange: the newest copy of a neighbour at most `age` generations behind is used without waiting.

    The messages of a post are the number of its generation, and the cells; they go from the host, for nobody knows when
    they are taken.
    """

    def __init__(self, age: int, *everything: Any) -> None:
        super().__init__(*everything)
        self.age = age
        self._last: dict[int, int] = {}  # by worker, the generation of what came last
        self._ways: Mapping[tuple[int, int], Sequence[int]] = {}
        self._near: dict[int, CellState] = {}

    def gather(self, mine: Mapping[int, Centre], reach: Sequence[int], generation: int) -> dict[int, Centre]:
        here, rank = {cell.number: cell for cell in self.mine()}, self.communicator.rank
        self._ways = exchange_routes(self.owners, self.topology(generation))
        number = torch.tensor([generation]).view(torch.uint8)
        sends = {b: [number, *pack_cells(cells, here)] for (a, b), cells in self._ways.items() if a == rank}
        self.communicator.post(sends)
        self.progress()
        for a in [a for (a, b), cells in self._ways.items() if b == rank and cells]:
            while a not in self._last or self._last[a] < generation - self.age:
                self.communicator.wait(a)
                self.progress()
        return {cell: mine[cell] if cell in mine else self._near[cell].centre for cell in reach}

    def progress(self) -> None:
        """Take in what has come."""
        for a, (number, *messages) in self.communicator.newest().items():
            generation = int(number.view(torch.int64)) if len(number) == 8 else -1
            came = unpack_cells(self._ways[a, self.communicator.rank], messages, self.like)
            self._last[a] = generation
            self._near |= came
            self.copies.setdefault(generation, {}).update(came)
