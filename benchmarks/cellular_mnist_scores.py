"""What a finished grid is worth: its mixtures, its ensembles and its single generators, each chosen by one yardstick.

The yardstick is what the run itself chooses by: the distance of `grid.mixture.num_images` images of each generator
(1,000) from the real ones. The score is that of `paragan eval`: 10,000 images, from latents of another stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paragan.config import read_recipe
from paragan.core.types import Side
from paragan.extensions.grid.build import trainer as grid
from paragan.extensions.grid.evolution import Evolution
from paragan.extensions.grid.mixture import mixture_features

FD = "fd[mnist]"


def scored(folder: Path) -> dict[str, Any]:
    """Of the run in this folder.

    fd: of mixtures and of single generators; singles: of every cell's generator; coverage: of the run's own mixture.
    chosen: what the choice went by, and the cell that it fell on. updates: of each player of each cell.
    """
    run = grid.evolution(read_recipe(str(folder / "config.yaml")), folder, print, lambda: False, reading=True)
    if not run.resume() or run.ensemble is None:
        raise SystemExit(f"{folder}: found no finished run, expected one whose ensemble was looked for")
    own = run.compute_score().metrics
    metric = FD if FD in own else next(name for name in own if name.startswith("fd["))
    ensemble = run.ensemble
    cells = range(len(run.cells))
    singles = [_score(run, [cell], [1.0])[metric] for cell in cells]
    by = _distances(run)
    best = min(cells, key=lambda cell: (by[cell], cell))
    fd = {
        "the run's own": own[metric],
        "best cell's mixture": _of_best_cell(run)[metric],
        "greedy ensemble": _score(run, list(ensemble.counts), list(ensemble.counts.values()))[metric],
        "all equally": _score(run, list(cells), [1.0] * len(run.cells))[metric],
        "best single": singles[best],
        "median single": sorted(singles)[len(singles) // 2],
    }
    chosen = {
        "singles": by,
        "best": best,
        "ensemble": {"counts": {str(n): count for n, count in ensemble.counts.items()}, "fd": ensemble.distance},
        "best cell": {"cell": run.best_cell.number, "fd": run.best_cell.score, "weights": list(run.best_cell.weights)},
    }
    updates = {side.value: [cell.players[side].version for cell in run.cells] for side in Side}
    return {"fd": fd, "singles": singles, "coverage": own.get("coverage"), "chosen": chosen, "updates": updates}


def _distances(run: Evolution) -> list[float]:
    """Of each generator: what the run's search for an ensemble had before it, from the same latents."""
    population = run.population
    scorer = population.mixture_scorer
    assert scorer is not None
    pools = [scorer.features(cell.centre[Side.G], population.generation) for cell in run.cells]
    return [scorer.distance(mixture_features([pool], [1.0])) for pool in pools]


def _of_best_cell(run: Evolution) -> dict[str, float]:
    """Of the mixture of the best cell's neighbourhood, whether or not the run draws from the ensemble instead."""
    ensemble, run.ensemble = run.ensemble, None
    try:
        return run.compute_score().metrics
    finally:
        run.ensemble = ensemble


def _score(run: Evolution, cells: Sequence[int], weights: Sequence[float]) -> dict[str, float]:
    """Of these cells' generators together; one alone is drawn from the same latents as a mixture."""
    mixture = run.factory.mixture([run.cells[cell].centre[Side.G] for cell in cells], weights)
    return run.factory.score(run.prior, mixture).metrics
