"""Neighbourhoods of cells, as integers alone.

A neighbourhood lists the cell itself first, then the others in a fixed order, each once. No other
code depends on the shape of the grid, so neighbourhoods may change in every generation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from paragan.coevolution.options import GridOptions
from paragan.core.errors import ConfigError


@dataclass(frozen=True)
class Topology:
    """Neighbourhoods of all cells. neighbours: by cell, beginning with the cell."""

    neighbours: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        for cell, near in enumerate(self.neighbours):
            is_unique = len(set(near)) == len(near)
            if near[:1] != (cell,) or not is_unique or not set(near) <= set(range(len(self))):
                place = f"the neighbourhood {list(near)} of cell {cell}"
                raise ConfigError(f"grid: {place} must list the cell first, and each cell once")

    def __len__(self) -> int:
        return len(self.neighbours)

    def reach(self, cells: Iterable[int]) -> list[int]:
        """Return all members of the neighbourhoods of these cells, in order."""
        return sorted(set().union(*(self.neighbours[cell] for cell in cells)))

    @property
    def diameter(self) -> int | None:
        """Generations until a genome can reach every cell; None: never."""
        hops = [self._hops(cell) for cell in range(len(self))]
        return None if None in hops else max(hop for hop in hops if hop is not None)

    def _hops(self, start: int) -> int | None:
        """Return the distance from a cell to its farthest reader; None if one is unreachable."""
        readers: list[list[int]] = [[] for _ in self.neighbours]
        for cell, near in enumerate(self.neighbours):
            for other in near:
                readers[other].append(cell)
        distances = {start: 0}
        waiting = deque([start])
        while waiting:
            cell = waiting.popleft()
            for reader in readers[cell]:
                if reader not in distances:
                    distances[reader] = distances[cell] + 1
                    waiting.append(reader)
        return max(distances.values()) if len(distances) == len(self) else None


def torus(rows: int, columns: int, radius: int = 1) -> Topology:
    """Build a torus: neighbours of cell r * columns + c are all cells within `radius` steps.

    Steps wrap around the edges. With radius 1 these are the five cells of Lipizzaner
    (Schmiedlechner et al. 2018, section 3).
    """
    steps = _offsets(radius)

    def near(r: int, c: int) -> tuple[int, ...]:
        around = (((r + down) % rows) * columns + (c + right) % columns for down, right in steps)
        return _unique((r * columns + c, *around))

    return Topology(tuple(near(*divmod(cell, columns)) for cell in range(rows * columns)))


def ring(cells: int, radius: int = 1) -> Topology:
    """Build a ring: neighbours are `radius` cells on each side (Toutouh et al. 2021, Lipi-Ring)."""
    steps = [step for step in range(-radius, radius + 1) if step]
    steps.sort(key=lambda step: (abs(step), step))
    near = [_unique((cell, *((cell + step) % cells for step in steps))) for cell in range(cells)]
    return Topology(tuple(near))


def graph(cells: int, edges: Sequence[Sequence[int]]) -> Topology:
    """Build a graph, in which both ends of an edge (a, b) read each other.

    Raises `ConfigError` if an end is not a cell.
    """
    near: list[list[int]] = [[cell] for cell in range(cells)]
    for edge in edges:
        if len(edge) != 2 or not all(0 <= end < cells for end in edge):
            hint = f"use two numbers from 0 to {cells - 1}"
            raise ConfigError(f"grid.edges: {list(edge)} is not a pair of cells; {hint}")
        a, b = edge
        near[a].append(b)
        near[b].append(a)
    return Topology(tuple(_unique(cell) for cell in near))


def topology_at(options: GridOptions, generation: int) -> Topology:
    """Return the neighbourhoods in a generation of a run."""
    started = [change for change in options.changes if change.at <= generation]
    now = max(started, key=lambda change: change.at, default=options)
    if now.edges is not None:
        return graph(options.num_cells, now.edges)
    if now.topology == "ring":
        return ring(options.num_cells, now.radius)
    return torus(*options.rows_columns, now.radius)


def _offsets(radius: int) -> list[tuple[int, int]]:
    """Return (down, right) within `radius` steps: nearest first; then north, south, west, east."""
    span = range(-radius, radius + 1)
    around = [step for step in product(span, span) if 0 < abs(step[0]) + abs(step[1]) <= radius]
    return sorted(around, key=lambda step: (abs(step[0]) + abs(step[1]), abs(step[1]), step))


def _unique(cells: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(cells))
