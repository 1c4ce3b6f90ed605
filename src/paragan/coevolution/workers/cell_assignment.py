"""Which worker has which cells."""

from __future__ import annotations

from collections.abc import Sequence

from paragan.core.errors import ConfigError


def rectangular_blocks(rows: int, columns: int, workers: int) -> list[int] | None:
    """By cell, a worker of a torus of equal rectangles, row by row; None where they do not divide the grid.

    Of all ways the one with the shortest edges, across which genomes travel.
    """
    ways = [
        (rows // down + columns // across, down, across)
        for down in range(1, workers + 1)
        for across in (workers // down,)
        if down * across == workers and rows % down == 0 and columns % across == 0
    ]
    if not ways:
        return None
    _, down, across = min(ways)
    high, wide = rows // down, columns // across
    return [(cell // columns) // high * across + (cell % columns) // wide for cell in range(rows * columns)]


def assign_cells(rows: int, columns: int, speeds: Sequence[float]) -> list[int]:
    """By cell, a worker: as many cells as its speed is of all speeds, at least one each; equal speeds get rectangles
    where these divide the grid, others follow one another along the rows, every other one backwards.

    speeds: cells per second of each worker, in any unit. `ConfigError` for more workers than cells.
    """
    cells, workers = rows * columns, len(speeds)
    if workers > cells:
        raise ConfigError(f"workers: found {workers} for a grid of {cells} cells, expected at most {cells}")
    if len(set(speeds)) == 1 and (found := rectangular_blocks(rows, columns, workers)) is not None:
        return found
    shares = _cell_counts(cells, speeds)
    path = [
        r * columns + (c if r % 2 == 0 else columns - 1 - c) for r in range(rows) for c in range(columns)
    ]  # neighbours follow one another
    owner = [0] * cells
    place = 0
    for worker, count in enumerate(shares):
        for cell in path[place : place + count]:
            owner[cell] = worker
        place += count
    return owner


def generation_seconds(owners: Sequence[int], speeds: Sequence[float]) -> float:
    """Seconds of a generation where workers make so many cells a second: who has most to do decides."""
    return max(owners.count(worker) / speed for worker, speed in enumerate(speeds))


def _cell_counts(cells: int, speeds: Sequence[float]) -> list[int]:
    """One each, then the next one to whoever would be done first with it."""
    counts = [1] * len(speeds)
    for _ in range(cells - len(speeds)):
        first = min(range(len(speeds)), key=lambda worker: ((counts[worker] + 1) / speeds[worker], worker))
        counts[first] += 1
    return counts
