"""Which cells a cell exchanges genomes with: integers, and nothing else.

A neighbourhood lists the cell itself first, then the others in a fixed order, each once. It is all that depends on the
shape of the grid, so it may be another one in every generation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paragan.coevolution.options import GridOptions, NeighbourhoodChange
from paragan.core.errors import ConfigError


@dataclass(frozen=True)
class Topology:
    """neighbours: by cell, that cell itself first."""

    neighbours: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        for cell, near in enumerate(self.neighbours):
            if near[:1] != (cell,) or len(set(near)) < len(near) or not set(near) <= set(range(len(self))):
                raise ConfigError(f"grid: found the neighbourhood {list(near)} of cell {cell}, expected it first, once")

    def __len__(self) -> int:
        return len(self.neighbours)

    def reach(self, cells: Iterable[int]) -> list[int]:
        """Everybody in the neighbourhoods of these cells, in order."""
        return sorted({near for cell in cells for near in self.neighbours[cell]})

    @property
    def diameter(self) -> int | None:
        """Generations until what one cell has found can be everywhere; None: never."""
        hops = [self._hops(cell) for cell in range(len(self))]
        return None if None in hops else max(hop for hop in hops if hop is not None)

    def _hops(self, start: int) -> int | None:
        """How far the farthest reader of a cell is."""
        readers: list[list[int]] = [[] for _ in self.neighbours]
        for cell, near in enumerate(self.neighbours):
            for other in near:
                readers[other].append(cell)
        far, waiting = {start: 0}, deque([start])
        while waiting:
            cell = waiting.popleft()
            for reader in readers[cell]:
                if reader not in far:
                    far[reader] = far[cell] + 1
                    waiting.append(reader)
        return max(far.values()) if len(far) == len(self) else None


def torus(rows: int, columns: int, radius: int = 1) -> Topology:
    """Cell r * columns + c and all within `radius` steps north, south, west or east, around the edges.

    With radius 1 these are the five cells of Lipizzaner (Schmiedlechner et al. 2018, section 3).
    """
    steps = _offsets(radius)

    def near(r: int, c: int) -> tuple[int, ...]:
        around = (((r + down) % rows) * columns + (c + right) % columns for down, right in steps)
        return _unique((r * columns + c, *around))

    return Topology(tuple(near(r, c) for r in range(rows) for c in range(columns)))


def ring(cells: int, radius: int = 1) -> Topology:
    """The `radius` cells before and after (Toutouh et al. 2021, Lipi-Ring)."""
    steps = [step for distance in range(1, radius + 1) for step in (-distance, distance)]
    return Topology(tuple(_unique((cell, *((cell + step) % cells for step in steps))) for cell in range(cells)))


def graph(cells: int, edges: Sequence[Sequence[int]]) -> Topology:
    """Both ends of an edge (a, b) read each other. `ConfigError` for an end that is no cell."""
    near: list[list[int]] = [[cell] for cell in range(cells)]
    for edge in edges:
        if len(edge) != 2 or not all(0 <= end < cells for end in edge):
            raise ConfigError(f"grid.edges: found {list(edge)}, expected two cells of 0 … {cells - 1}")
        a, b = edge
        near[a].append(b)
        near[b].append(a)
    return Topology(tuple(_unique(cell) for cell in near))


def topology_at(options: GridOptions, generation: int) -> Topology:
    """Whom each cell reads in that generation of a run."""
    started = [change for change in options.changes if change.at <= generation]
    now: GridOptions | NeighbourhoodChange = max(started, key=lambda change: change.at) if started else options
    if now.edges is not None:
        return graph(options.num_cells, now.edges)
    if now.topology == "ring":
        return ring(options.num_cells, now.radius)
    return torus(*options.rows_columns, now.radius)


def _offsets(radius: int) -> list[tuple[int, int]]:
    """(down, right) of everything within `radius` steps: nearest first; north, south, west, east."""
    around = [
        (down, right)
        for down in range(-radius, radius + 1)
        for right in range(-radius, radius + 1)
        if 0 < abs(down) + abs(right) <= radius
    ]
    return sorted(around, key=lambda step: (abs(step[0]) + abs(step[1]), abs(step[1]), step))


def _unique(cells: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(cells))
