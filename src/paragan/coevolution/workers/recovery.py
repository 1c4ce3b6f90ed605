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
    saved: SavedCells, last: Sequence[str], may_differ: bool = False
) -> tuple[int, list[RecoverySource | None]]:
    """Return the boundary from which to resume, and each cell's source; None: it has not begun.

    saved: saved cells by name and boundary. last: name of the last worker of each cell. The boundary
    is the newest for which a state of every cell exists. may_differ: cells may resume from
    different boundaries; then it is the oldest of the cells' newest boundaries, and a cell without
    a state there uses the next boundary for which one exists.
    """
    edges = sorted(set().union(*saved.values()), reverse=True)
    for edge in edges:
        sources = [_source_at(saved, edge, cell, name) for cell, name in enumerate(last)]
        if None not in sources:
            return edge, sources
    if not may_differ:
        return 0, [None] * len(last)
    having = [[edge for edge in edges if _source_at(saved, edge, n, "")] for n in range(len(last))]
    newest = [max(edges_of_cell, default=0) for edges_of_cell in having]
    oldest = min(newest)
    later = sorted(edge for edge in edges if edge >= oldest)
    sources = []
    for cell, name in enumerate(last):
        candidates = (_source_at(saved, edge, cell, name) for edge in later)
        sources.append(next((source for source in candidates if source is not None), None))
    return oldest, sources


def _source_at(saved: SavedCells, edge: int, cell: int, last: str) -> RecoverySource | None:
    """Return the source of a cell at a boundary, if possible its last worker (no transfer)."""
    names = [name for name, states in saved.items() if cell in states.get(edge, ())]
    return RecoverySource(last if last in names else names[0], edge) if names else None
