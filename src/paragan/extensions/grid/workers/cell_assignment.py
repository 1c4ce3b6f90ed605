"""Assignment of cells to workers."""

import heapq
from collections import Counter
from collections.abc import Sequence
from itertools import islice

_MIN_SPEEDUP = 1.15  # cells are reassigned if generations become shorter by this factor


def rectangular_blocks(rows: int, columns: int, workers: int) -> list[int] | None:
    """Divide the grid into equal rectangles, one per worker; returns the worker of each cell.

    Returns None if that is impossible. Chooses the division with the shortest edges, since genomes
    are sent across them.
    """
    # numbers of rectangles below and next to each other
    divisions = [(down, workers // down) for down in range(1, workers + 1) if workers % down == 0]
    sizes = [(rows // down, columns // right) for down, right in divisions if not (rows % down or columns % right)]
    if not sizes:
        return None
    height, width = min(sizes, key=sum)
    blocks_in_row = columns // width
    places = [divmod(cell, columns) for cell in range(rows * columns)]
    return [row // height * blocks_in_row + column // width for row, column in places]


def assign_cells(rows: int, columns: int, speeds: Sequence[float]) -> list[int]:
    """Assign cells in proportion to the workers' speeds, at least one each.

    Returns the worker of each cell. Equal speeds get rectangles if these divide the grid; otherwise
    the cells of a worker are consecutive along rows, every second row backwards. speeds: cells per
    second of each worker, in any unit; at most one worker per cell.
    """
    cells = rows * columns
    blocks = rectangular_blocks(rows, columns, len(speeds)) if len(set(speeds)) == 1 else None
    if blocks is not None:
        return blocks
    # every second row backwards, so that consecutive cells are neighbours
    path: list[int] = []
    for row in range(rows):
        cells_of_row = range(row * columns, (row + 1) * columns)
        path += cells_of_row if row % 2 == 0 else reversed(cells_of_row)
    owners = [0] * cells
    remaining = iter(path)
    for worker, count in enumerate(_cell_counts(cells, speeds)):
        for cell in islice(remaining, count):
            owners[cell] = worker
    return owners


def generation_seconds(owners: Sequence[int], speeds: Sequence[float]) -> float:
    """Return the seconds of a generation. owners: worker of each cell. speeds: cells per second."""
    counts = Counter(owners)
    return max(counts[worker] / speed for worker, speed in enumerate(speeds))


def is_unbalanced(owners: Sequence[int], rows: int, columns: int, speeds: Sequence[float]) -> bool:
    """Return whether another assignment would make generations shorter by 15 %."""
    shortest_s = generation_seconds(assign_cells(rows, columns, speeds), speeds)
    return generation_seconds(owners, speeds) > _MIN_SPEEDUP * shortest_s


def _cell_counts(cells: int, speeds: Sequence[float]) -> list[int]:
    """Assign one cell to each worker, and each next to the worker that would finish it first."""
    counts = [1] * len(speeds)
    ends = [(2 / speed, worker) for worker, speed in enumerate(speeds)]  # when each would finish a second cell
    heapq.heapify(ends)
    for _ in range(cells - len(speeds)):
        _, worker = ends[0]
        counts[worker] += 1
        heapq.heapreplace(ends, ((counts[worker] + 1) / speeds[worker], worker))
    return counts
