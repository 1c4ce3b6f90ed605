"""Neighbourhoods of cells, as integers alone.

A neighbourhood lists the cell itself first, then the others in a fixed order, each once. No other
code depends on the shape of the grid.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from paragan.config.grid_options import GridOptions


@dataclass(frozen=True)
class Topology:
    """Neighbourhoods of all cells. neighbours: by cell, beginning with the cell."""

    neighbours: tuple[tuple[int, ...], ...]

    def reach(self, cells: Iterable[int]) -> list[int]:
        """Return all members of the neighbourhoods of these cells, in order."""
        return sorted(set().union(*(self.neighbours[cell] for cell in cells)))


def torus(rows: int, columns: int, radius: int = 1) -> Topology:
    """Build a torus: neighbours of cell r * columns + c are all cells within `radius` steps.

    Steps wrap around the edges. With radius 1 these are the five cells of Lipizzaner
    (Schmiedlechner et al. 2018, section 3).
    """
    span = range(-radius, radius + 1)
    steps = [(down, right) for down, right in product(span, span) if abs(down) + abs(right) <= radius]
    # the cell itself, then nearest first: north, south, west, east
    steps.sort(key=lambda step: (abs(step[0]) + abs(step[1]), abs(step[1]), step))
    neighbours = []
    for row, column in product(range(rows), range(columns)):
        reached = [(row + down) % rows * columns + (column + right) % columns for down, right in steps]
        neighbours.append(tuple(dict.fromkeys(reached)))  # a small torus reaches a cell by several steps: once
    return Topology(tuple(neighbours))


def ring(cells: int, radius: int = 1) -> Topology:
    """Build a ring: neighbours are `radius` cells on each side (Toutouh et al. 2021, Lipi-Ring)."""
    steps = sorted(range(-radius, radius + 1), key=lambda step: (abs(step), step))
    neighbours = []
    for cell in range(cells):
        reached = [(cell + step) % cells for step in steps]
        neighbours.append(tuple(dict.fromkeys(reached)))
    return Topology(tuple(neighbours))


def topology_of(options: GridOptions) -> Topology:
    """Return the neighbourhoods of a grid."""
    if options.topology == "ring":
        return ring(options.num_cells, options.radius)
    return torus(*options.rows_columns, options.radius)
