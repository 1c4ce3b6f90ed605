"""From which edge of a generation a grid goes on when somebody is gone, and who has which cell as it was then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SavedCells = Mapping[str, Mapping[int, Sequence[int]]]


@dataclass(frozen=True)
class RecoverySource:
    """Who has a cell as it was at that edge, by name."""

    name: str
    edge: int


def recovery_sources(
    held: SavedCells, last: Sequence[str], may_differ: bool = False
) -> tuple[int, list[RecoverySource | None]]:
    """The edge from which to go on, and by cell where it is; None for what has yet to begin.

    held: by name, edge -> cells. last: by cell, who had it. The edge is the newest at which every cell is somewhere.
    may_differ: cells need not all be at one; then it is the oldest of what is the newest of each, and a cell that
    nobody has as it was then is taken as it was at the next edge that somebody has.
    """
    edges = sorted({edge for of_one in held.values() for edge in of_one}, reverse=True)
    for edge in edges:
        found = [_source_at(held, edge, cell, own) for cell, own in enumerate(last)]
        if None not in found:
            return edge, found
    if not may_differ:
        return 0, [None] * len(last)
    newest = [max((e for e in edges if _source_at(held, e, cell, "")), default=0) for cell in range(len(last))]
    edge = min(newest)
    later = sorted(e for e in edges if e >= edge)
    return edge, [
        next((source for e in later if (source := _source_at(held, e, cell, own)) is not None), None)
        for cell, own in enumerate(last)
    ]


def _source_at(held: SavedCells, edge: int, cell: int, own: str) -> RecoverySource | None:
    """From who had it if possible: it need not travel, then."""
    names = [name for name, of_one in held.items() if cell in of_one.get(edge, ())]
    return RecoverySource(own if own in names else names[0], edge) if names else None
