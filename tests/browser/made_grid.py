"""A run of a grid of cells as training leaves it, made up: selection, mutation and scores, without any network."""

import json
import math
import random
from pathlib import Path

from tests.browser.made_run import line

LOSSES = ("minimax", "least_squares", "<b>nonsaturating</b>")
STEPS = 10  # of a generation


def make(folder: Path, rows: int, columns: int, generations: int, losses: tuple[str, ...] = LOSSES) -> Path:
    """`generations` lines after a start line, the last of them again with an ensemble; no end."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [start(rows, columns, losses), *evolved(rows, columns, generations, len(losses))]
    ensemble = {"counts": {str(cell): 1 + cell % 2 for cell in range(min(4, rows * columns))}, "distance": 19.25}
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in [*lines, lines[-1] | {"ensemble": ensemble}])
    )
    return folder


def start(rows: int, columns: int, losses: tuple[str, ...] = LOSSES) -> dict:
    near = [neighbours(rows, columns, cell) for cell in range(rows * columns)]
    grid = {"shape": [rows, columns], "losses": list(losses), "neighbours": near}
    return line("start", 0, recipe="cells", total_kimg=500, grid=grid)


def neighbours(rows: int, columns: int, cell: int) -> list[int]:
    r, c = divmod(cell, columns)
    steps = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
    return list(dict.fromkeys((r + down) % rows * columns + (c + right) % columns for down, right in steps))


def evolved(rows: int, columns: int, generations: int, num_losses: int) -> list[dict]:
    """Cells inherit a rate from the fitter neighbour, mutate it, and keep an old individual now and then."""
    draw, count = random.Random(0), rows * columns
    rates = [[2e-4, 2e-4] for _ in range(count)]
    born = [[[cell, 0], [cell, 0]] for cell in range(count)]
    hills = [math.sin(cell / 3) + math.cos(cell / 7) for cell in range(count)]
    lines = []
    for number in range(1, generations + 1):
        was = [list(rate) for rate in rates]
        cells = {}
        for cell in range(count):
            near = neighbours(rows, columns, cell)
            for side in range(2):
                if draw.random() < 0.7:
                    rates[cell][side] = abs(was[draw.choice(near)][side] + draw.gauss(0, 3e-5))
                    born[cell][side] = [cell if draw.random() < 0.8 else draw.choice(near), number]
            score = 20 + 400 * math.exp(-number / 20) + 6 * hills[cell] + draw.gauss(0, 2)
            cells[str(cell)] = {
                "fitness": {"g": 0.6 + 0.1 * draw.random(), "d": 1.1 - 0.05 * hills[cell]},
                "score": score,
                "lr": {"g": rates[cell][0], "d": rates[cell][1]},
                "born": {"g": list(born[cell][0]), "d": list(born[cell][1])},
                "loss": draw.randrange(max(1, num_losses)),
                "weights": shares(len(near), draw),
            }
        lines.append(line("generation", number * STEPS, generation=number, cells=cells, profile=profile(count)))
    return lines


def shares(count: int, draw: random.Random) -> list[float]:
    parts = [1 + draw.random() for _ in range(count)]
    return [round(part / sum(parts), 4) for part in parts]


def profile(cells: int) -> dict:
    """Whole quarters of seconds, so that sums are exact."""
    routines = {"gather": 0.25, "evaluate": 1.5, "update_genomes": 0.5, "mutate": 0.25, "train": 4.0, "score": 1.5}
    return {
        "wall_s": {name: s * cells for name, s in routines.items()},
        "cpu_s": {n: s * cells / 2 for n, s in routines.items()},
    }
