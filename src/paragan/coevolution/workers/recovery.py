"""Recovery: boundary from which a grid resumes after a failure, and sources of the cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SavedCells = Mapping[str, Mapping[int, Sequence[int]]]


@dataclass(frozen=True)
class RecoverySource:
    """Holder of the state of a cell. name: worker or coordinator. edge: boundary of the state."""

    name: str
    edge: int


def recovery_sources(
    held: SavedCells, last: Sequence[str], may_differ: bool = False
) -> tuple[int, list[RecoverySource | None]]:
    """Return the boundary from which to resume, and each cell's source; None: it has not begun.

    held: saved cells by name and boundary. last: name of the last worker of each cell. The boundary
    is the newest for which a state of every cell exists. may_differ: cells may resume from
    different boundaries; then it is the oldest of the cells' newest boundaries, and a cell without
    a state there uses the next boundary for which one exists.
    """
    edges = sorted(set().union(*held.values()), reverse=True)
    for edge in edges:
        found = [_source_at(held, edge, cell, name) for cell, name in enumerate(last)]
        if None not in found:
            return edge, found
    if not may_differ:
        return 0, [None] * len(last)
    having = [[edge for edge in edges if _source_at(held, edge, n, "")] for n in range(len(last))]
    newest = [max(edges_of_cell, default=0) for edges_of_cell in having]
    oldest = min(newest)
    later = sorted(edge for edge in edges if edge >= oldest)
    return oldest, [_first_source(held, later, cell, name) for cell, name in enumerate(last)]


def _first_source(held: SavedCells, edges: Sequence[int], cell: int, last: str) -> RecoverySource | None:
    """Return the source of a cell at the first of these boundaries that has one."""
    for edge in edges:
        source = _source_at(held, edge, cell, last)
        if source is not None:
            return source
    return None


def _source_at(held: SavedCells, edge: int, cell: int, last: str) -> RecoverySource | None:
    """Return the source of a cell at a boundary, if possible its last worker (no transfer)."""
    names = [name for name, saved in held.items() if cell in saved.get(edge, ())]
    return RecoverySource(last if last in names else names[0], edge) if names else None
