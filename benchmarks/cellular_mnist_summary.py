"""From runs of a grid to a table: what the record holds of each, means over seeds, differences seed by seed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.asynchronous_summary import interval

Run = Mapping[str, Any]
Runs = Mapping[str, Sequence[Run]]  # by arm, in the order of seeds

OWN, CELLS, ENSEMBLE, SINGLE, MEDIAN = (
    "the run's own", "best cell's mixture", "greedy ensemble", "best single", "median single",
)  # fmt: skip
_PAIRS = (  # a population's minus the other arm's
    (OWN, MEDIAN), (OWN, SINGLE), (OWN, OWN), (CELLS, SINGLE), (CELLS, ENSEMBLE), (ENSEMBLE, ENSEMBLE),
    ("all equally", "all equally"), (SINGLE, SINGLE), (MEDIAN, MEDIAN),
)  # fmt: skip


def generations(folder: Path) -> list[dict[str, Any]]:
    """Of the run's record, in order; the last one is listed twice, once with the ensemble."""
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return list({line["generation"]: line for line in lines if line["kind"] == "generation"}.values())


def spent(folder: Path) -> dict[str, Any]:
    """cpu_s, wall_s: of all generations, without scores, images and checkpoints. by: CPU seconds by routine."""
    found = generations(folder)
    by = {name: sum(line["profile"]["cpu_s"][name] for line in found) for name in found[0]["profile"]["cpu_s"]}
    wall_s = sum(sum(line["profile"]["wall_s"].values()) for line in found)
    return {"cpu_s": sum(by.values()), "wall_s": wall_s, "by": by}


def course(folder: Path) -> list[dict[str, Any]]:
    """After each generation: kimg; fd of the best cell's mixture, of the median one; and of either player: lr, sorted;
    share of cells that kept what they had trained; lines: of how many of the first generation all descend.
    """
    return [_moment(line) for line in generations(folder)]


def _moment(line: Mapping[str, Any]) -> dict[str, Any]:
    cells, now = list(line["cells"].values()), line["generation"]
    scores = sorted(cell["score"] for cell in cells if cell["score"] is not None)
    return {
        "kimg": line["kimg"],
        "best": scores[0],
        "median": scores[len(scores) // 2],
        **{
            side: {
                "lr": sorted(cell["lr"][side] for cell in cells),
                "kept": sum(cell["born"][side][1] == now for cell in cells) / len(cells),
                "lines": len({cell["born"][side][0] for cell in cells}),
            }
            for side in ("g", "d")
        },
    }


def summed(runs: Runs) -> dict[str, Any]:
    """All results, as plain values; `half` is of the 95 % interval of a mean (Student's t)."""
    return {
        "seeds": max(map(len, runs.values())),
        "updates": {side: per[0] for side, per in next(iter(runs.values()))[0]["updates"].items()},
        "arms": {arm: _arm(of) for arm, of in runs.items()},
        "paired": dict(_differences(runs)),
    }


def _arm(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "fd": {what: _over_seeds([run["fd"][what] for run in runs]) for what in runs[0]["fd"]},
        "coverage": _over_seeds(_there(run["coverage"] for run in runs)),
        "spent": {key: round(statistics.fmean(run["spent"][key] for run in runs), 1) for key in ("cpu_s", "wall_s")},
        "end": {side: _end(runs, side) for side in ("g", "d")},
        "members of the ensemble": [len(run["chosen"]["ensemble"]["counts"]) for run in runs],
        "runs": [
            {**{key: run[key] for key in ("singles", "chosen", "spent")}, "course": [_short(m) for m in run["course"]]}
            for run in runs
        ],
    }


def _short(moment: Mapping[str, Any]) -> dict[str, Any]:
    """With the lowest, the median and the highest learning rate only."""
    shown = {**moment}
    for side in ("g", "d"):
        rates = moment[side]["lr"]
        low_middle_high = (rates[0], statistics.median(rates), rates[-1])
        shown[side] = {**moment[side], "lr": [float(f"{rate:.3g}") for rate in low_middle_high]}
    return shown


def _end(runs: Sequence[Run], side: str) -> dict[str, Any]:
    """kept: of all generations of all runs; lines and median learning rate at the end, by seed."""
    kept = [moment[side]["kept"] for run in runs for moment in run["course"]]
    last = [run["course"][-1][side] for run in runs]
    return {
        "kept": round(statistics.fmean(kept), 3),
        "lines": [of["lines"] for of in last],
        "lr": [statistics.median(of["lr"]) for of in last],
    }


def _differences(runs: Runs, other: str = "independent") -> Iterable[tuple[str, dict[str, Any]]]:
    """Lower is better: below 0 the population is ahead."""
    for arm in runs:
        for what, against in _PAIRS:
            if other in runs and arm != other:
                pairs = zip(runs[arm], runs[other], strict=False)
                values = [a["fd"][what] - b["fd"][against] for a, b in pairs]
                yield f"{arm}, {what} - {other}, {against}", _over_seeds(values)


def _over_seeds(values: Sequence[float]) -> dict[str, Any]:
    return {"seeds": list(values), **interval(values)}


def _there(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
