"""From runs to a table: means with intervals, at equal images and at equal seconds of two devices."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.asynchronous_cost import Cost
from benchmarks.asynchronous_rows import Row, Table

Run = Mapping[str, Any]
Runs = Mapping[str, Sequence[Run]]  # by row, in the order of seeds

# Student's t, two-sided 95 %, by degrees of freedom from 1
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)

COST = {
    "in turns": "two devices, a player on each, one waits for the other: seconds of a step = G's + D's",
    "at once": "two devices, a player on each, both at work: seconds of a step = the larger of G's and D's",
    "shared out": "two devices, both players on each, half of the batch, free exchange: half of G's + D's",
}


def interval(values: Sequence[float]) -> dict[str, float]:
    """mean, and half the width of its 95 % interval (infinite for one value)."""
    count = len(values)
    if not count:
        return {"mean": math.nan, "half": math.nan, "count": 0}
    half = math.inf
    if count > 1:
        t = _T[count - 2] if count - 2 < len(_T) else 1.96
        half = t * statistics.stdev(values) / math.sqrt(count)
    return {"mean": statistics.fmean(values), "half": half, "count": count}


def paired(a: Sequence[Run], b: Sequence[Run], value: Callable[[Run], float | None]) -> dict[str, float]:
    """b - a, seed by seed."""
    both = [(value(x), value(y)) for x, y in zip(a, b, strict=False)]
    return interval([y - x for x, y in both if x is not None and y is not None])


def last(metric: str, points: int) -> Callable[[Run], float | None]:
    """The value at the end; None for a run that did not get there."""
    return lambda run: run["points"][-1][metric] if len(run["points"]) == points + 1 else None


def step_seconds(row: Row, cost: Cost, shared_out: bool = False) -> float:
    """Emulated, of one step, from what the players' parts cost."""
    if row.is_async:
        return max(cost["g"], cost["d"])
    return (cost["g"] + cost["d"]) / (2 if shared_out else 1)


def at_seconds(run: Run, per_step: float, seconds: float, metric: str) -> float | None:
    """The metric after so many emulated seconds, on a straight line between two scores; None beyond the last."""
    points = run["points"]
    for before, after in pairwise(points):
        first, second = before["step"] * per_step, after["step"] * per_step
        if first <= seconds <= second * (1 + 1e-9):
            share = (seconds - first) / (second - first)
            return float(before[metric] + share * (after[metric] - before[metric]))
    return None


def unsteadiness(run: Run, side: str) -> float | None:
    """Standard deviation of a player's loss from step to step within a fortieth of the run, in its second half."""
    found = [part["spread"] for part in run["losses"][side]]
    return statistics.fmean(found[len(found) // 2 :]) if found else None


def summed(table: Table, rows: Sequence[Row], runs: Runs, parts: Mapping[str, Cost]) -> dict[str, Any]:
    """All results of a table, as plain values."""
    end = last(table.metric, table.points)
    rows = [row for row in rows if runs.get(row.name)]
    costs = {row.name: step_seconds(row, parts[row.name]) for row in rows}
    shared = {row.name: step_seconds(row, parts[row.name], shared_out=True) for row in rows if not row.is_async}
    reached = [costs[row.name] * min(run["steps"] for run in runs[row.name]) for row in rows]
    seconds = min(reached, default=0.0)
    return {
        "metric": table.metric,
        "cost model": COST,
        "equal seconds": seconds,
        "ms of a step's parts": {row.name: {side: 1000 * s for side, s in parts[row.name].items()} for row in rows},
        "rows": {row.name: _row(table, row, runs[row.name], costs[row.name], seconds) for row in rows},
        "equal seconds, sync shared out": {
            name: interval(
                _there(at_seconds(run, cost, min(seconds, cost * run["steps"]), table.metric) for run in runs[name])
            )
            for name, cost in shared.items()
        },
        "paired": _pairs(table, rows, runs, end, costs, seconds),
    }


def _row(table: Table, row: Row, runs: Sequence[Run], cost: float, seconds: float) -> dict[str, Any]:
    names = [name for name in runs[0]["points"][0] if name not in ("images", "step")]
    whole = [run for run in runs if len(run["points"]) == table.points + 1]
    longest = max(runs, key=lambda run: len(run["points"]))
    curve = [
        {"images": point["images"], "seconds": point["step"] * cost,
         **interval([run["points"][n][table.metric] for run in runs if len(run["points"]) > n])}
        for n, point in enumerate(longest["points"])
    ]  # fmt: skip
    return {
        "label": table.label(row),
        "seeds": len(runs),
        "diverged": sum(run["diverged"] for run in runs),
        "fell back": sum(run["in_step_at"] is not None for run in runs),
        "steps": longest["steps"],
        "end": {name: interval([run["points"][-1][name] for run in whole]) for name in names},
        "at equal seconds": interval(_there(at_seconds(run, cost, seconds, table.metric) for run in runs)),
        "curve": curve,
        "busy ms per step": {side: 1000 * statistics.median(run["busy_s"][side] for run in runs) for side in "gd"},
        "emulated ms per step": 1000 * cost,
        "CPU ms per image": interval([1000 * run["train_cpu_s"] / run["points"][-1]["images"] for run in whole]),
        "unsteadiness": {
            side: interval(_there(unsteadiness(run, side) for run in runs)) for side in ("g", "d")
        },
        "lags": _lags(runs),
    }  # fmt: skip


def _pairs(
    table: Table, rows: Sequence[Row], runs: Runs, end: Callable[[Run], float | None], costs: Mapping[str, float],
    seconds: float,
) -> dict[str, Any]:  # fmt: skip
    """Each row against `sync`, and the asymmetric ones against the symmetric of the same scheme."""
    present = [row.name for row in rows]
    against = [("sync", name) for name in present if name != "sync"] + [("async", "async asymmetric")]
    found = {}
    for a, b in against:
        if a in present and b in present:
            at = {name: (lambda run, cost=costs[name]: at_seconds(run, cost, seconds, table.metric)) for name in (a, b)}
            both = [(at[a](x), at[b](y)) for x, y in zip(runs[a], runs[b], strict=False)]
            found[f"{b} - {a}"] = {
                "at equal images": paired(runs[a], runs[b], end),
                "at equal seconds": interval([y - x for x, y in both if x is not None and y is not None]),
                "unsteadiness of G's loss": paired(runs[a], runs[b], lambda run: unsteadiness(run, "g")),
            }
    return found


def _lags(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Shares of G's updates whose opponent, and of D's fakes that, were so many steps old."""
    found: dict[str, dict[str, float]] = {}
    for side in sorted({side for run in runs for side in run["lags"]}):
        counts: dict[str, int] = {}
        for run in runs:
            for lag, count in run["lags"].get(side, {}).items():
                counts[lag] = counts.get(lag, 0) + count
        total = sum(counts.values())
        found[side] = {lag: count / total for lag, count in sorted(counts.items())}
    return found


def _there(values: Any) -> list[float]:
    return [value for value in values if value is not None]
