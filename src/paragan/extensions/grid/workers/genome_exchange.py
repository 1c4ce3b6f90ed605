"""Genome exchange between the workers of a grid at a generation boundary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from paragan.extensions.grid.cell import Cell
from paragan.extensions.grid.cell_state import NUM_MESSAGES, CellState, Centre
from paragan.extensions.grid.topology import Topology
from paragan.extensions.grid.transports.communicator import Communicator


def exchange_routes(owners: Sequence[int], topology: Topology) -> dict[tuple[int, int], list[int]]:
    """Return the cells to send in an exchange, by (sender, receiver), in order.

    Every route has its reverse, which may be empty. Cells that no other worker reads are sent to
    the next worker, so that a copy survives any failure.
    """
    workers = sorted(set(owners))
    routes: dict[tuple[int, int], set[int]] = {}
    for cell, neighbours in enumerate(topology.neighbours):
        receiver = owners[cell]
        for neighbour in neighbours:
            sender = owners[neighbour]
            if sender != receiver:
                routes.setdefault((sender, receiver), set()).add(neighbour)
    if len(workers) > 1:
        sent = set().union(*routes.values())
        for cell, owner in enumerate(owners):
            if cell not in sent:
                next_worker = workers[(workers.index(owner) + 1) % len(workers)]
                routes.setdefault((owner, next_worker), set()).add(cell)
    # both ends of a route name each other in the call, so that a missing worker is noticed by either
    for sender, receiver in list(routes):
        routes.setdefault((receiver, sender), set())
    return {route: sorted(cells) for route, cells in routes.items()}


def transfer_routes(owners: Sequence[int], sources: Sequence[int | None]) -> dict[tuple[int, int], list[int]]:
    """Return the cells that change their worker, by (sender, receiver).

    Every route has its reverse, which may be empty. owners: rank that trains each cell from now on.
    sources: rank that has its state; None: it has none, and begins.
    """
    routes: dict[tuple[int, int], list[int]] = {}
    for cell, (source, owner) in enumerate(zip(sources, owners, strict=True)):
        if source is not None and source != owner:
            routes.setdefault((source, owner), []).append(cell)
            routes.setdefault((owner, source), [])
    return routes


# Messages carry no numbers of cells: both ends of a route compute the same routes, in which cells have one order.
def transfer_cells(
    communicator: Communicator,
    routes: Mapping[tuple[int, int], Sequence[int]],
    states: Mapping[int, CellState],
    like: Centre,
    with_root: bool,
) -> dict[int, CellState]:
    """Send cells of this process along their routes; returns the received cells by number."""
    rank = communicator.rank
    sends = {receiver: pack_cells(cells, states) for (sender, receiver), cells in routes.items() if sender == rank}
    messages = communicator.exchange(sends, with_root)
    received: dict[int, CellState] = {}
    for (sender, receiver), cells in routes.items():
        if receiver == rank:
            received |= zip(cells, unpack_cells(messages[sender], like), strict=True)
    return received


def pack_cells(cells: Sequence[int], states: Mapping[int, CellState]) -> list[Tensor]:
    """Encode cells as messages."""
    return [message for cell in cells for message in states[cell].pack()]


def unpack_cells(messages: Sequence[Tensor], like: Centre) -> list[CellState]:
    """Decode the messages of `pack_cells`, in order; raises `CheckpointError` if they are invalid."""
    return [CellState.unpack(messages[i : i + NUM_MESSAGES], like) for i in range(0, len(messages), NUM_MESSAGES)]


@dataclass(kw_only=True)
class GenomeExchange:
    """`population.Exchange` between workers.

    owners: rank of the worker of each cell. like: genomes of any cell, by whose sizes those that arrive are
    checked and read. copies: cells received last, by number.
    """

    communicator: Communicator
    owners: Sequence[int]
    topology: Topology
    like: Centre
    copies: dict[int, CellState] = field(default_factory=dict)

    def __call__(self, cells: Sequence[Cell], reach: Sequence[int]) -> dict[int, Centre]:
        """Exchange cells with the other workers; returns the centres of the cells in `reach`.

        reach: the numbers of `cells` and of their neighbours.
        """
        routes = exchange_routes(self.owners, self.topology)
        local = {cell.number: cell.state() for cell in cells}
        self.copies = transfer_cells(self.communicator, routes, local, self.like, with_root=False)
        states = local | self.copies
        return {cell: states[cell].centre for cell in reach}
