"""Scores of asynchronous training against synchronous, at equal images and at equal seconds of two emulated devices.

    python -m benchmarks.asynchronous_quality ring|digits|mnist|cifar10|tiny-imagenet [DATA] [--seeds 5] [--only WORDS]
        [--probes] [--keep FOLDER] [--kimg N] [--points N] [--name WORD] [--no-result]

Rows are schemes, batches of either player and pairs of optimisers (`asynchronous_rows`). `sync` is `shared_fakes`,
which the asynchronous scheme is, bit for bit, at S = 0; `async` has the defaults, S = 1. DATA is the
folder of the data set, with the classifiers next to it; ring and digits need none. Every run is kept in FOLDER, so that
a table that was stopped goes on. Set OMP_NUM_THREADS=1.

One process saves nothing by two threads, so the times are (a) seconds of this processor per image, of the
whole process, and (b) seconds that two devices would take, from what each player's part costs here:
`asynchronous_summary.COST`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks import asynchronous_plots as plots
from benchmarks.asynchronous_cost import Cost, costs
from benchmarks.asynchronous_rows import TABLES, Row, Table, chosen, shortened
from benchmarks.asynchronous_run import identity, played
from benchmarks.asynchronous_summary import Runs, summed
from benchmarks.record import write

_GROUPS = (  # what is drawn together
    ("sync", "async", "async half", "sync double"),
    ("sync", "async", "sync asymmetric", "async asymmetric"),
)
IMAGES = Path(__file__).resolve().parents[1] / "docs/images"


def kept(table: Table, row: Row, seed: int, data: str | None, keep: Path) -> dict[str, Any]:
    """The run of this row and seed: the one that is there, if it was of the same settings."""
    path = keep / table.name / f"{identity(table, row)}-{seed}.json"
    if path.is_file():
        return dict(json.loads(path.read_text())["run"])
    run = played(table, row, seed, data, keep)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps({"table": asdict(table), "row": asdict(row), "seed": seed, "run": run}))
    unfinished.rename(path)
    print(f"{table.name}, {row.name}, seed {seed}: {_shown(table, run)}", flush=True)
    return run


def measured(table: Table, rows: Sequence[Row], seeds: int, data: str | None, keep: Path) -> Runs:
    """All runs, seed by seed, so that a table that is cut short has as many of every row."""
    runs: dict[str, list[dict[str, Any]]] = {row.name: [] for row in rows}
    for seed in range(seeds):
        for row in rows:
            runs[row.name].append(kept(table, row, seed, data, keep))
    return runs


def result(table: Table, rows: Sequence[Row], runs: Runs, cost: Mapping[str, Cost]) -> dict[str, Any]:
    """What is written: the summary, and every run's scores."""
    minutes = sum(run["cpu_s"] for of in runs.values() for run in of) / 60
    scores = {name: [run["points"] for run in of] for name, of in runs.items()}
    about = {"table": asdict(table), "threads": 1, "CPU minutes": round(minutes, 1)}
    return {**about, **summed(table, rows, runs, cost), "points of every seed": scores}


def write_plots(table: Table, found: dict[str, Any], runs: Runs) -> None:
    """async-TABLE.svg and async-TABLE-losses.svg."""
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / f"async-{table.name}.svg").write_text(plots.scores(found, _GROUPS))
    pairs = {
        scheme: {"symmetric": runs[scheme], "asymmetric": runs[f"{scheme} asymmetric"]}
        for scheme in ("sync", "async")
        if {scheme, f"{scheme} asymmetric"} <= runs.keys()
    }
    if pairs:
        (IMAGES / f"async-{table.name}-losses.svg").write_text(plots.losses(pairs))


def print_results(found: dict[str, Any]) -> None:
    """The table on the console, as the pages have it."""
    print(f"\n| row | {found['metric']} at the end | after {found['equal seconds']:.0f} s | ms G, D | CPU ms/image |")
    print("|---|---:|---:|---:|---:|")
    for name, row in found["rows"].items():
        end, same, ms = row["end"][found["metric"]], row["at equal seconds"], found["ms of a step's parts"][name]
        cost, bad = row["CPU ms per image"], f", {row['diverged']} diverged" * bool(row["diverged"])
        times = f"{ms['g']:.1f}, {ms['d']:.1f} | {cost['mean']:.3f}"
        print(f"| {row['label']}{bad} | {_both(end)} | {_both(same)} | {times} |")
    for name, pair in found["paired"].items():
        print(f"{name}: " + "; ".join(f"{key} {_both(value)}" for key, value in pair.items()))
    print("lags:", {name: row["lags"] for name, row in found["rows"].items() if row["lags"]})
    print(f"CPU minutes: {found['CPU minutes']}", flush=True)


def _both(value: dict[str, float]) -> str:
    return f"{value['mean']:.4g} ± {value['half']:.2g}"


def _shown(table: Table, run: dict[str, Any]) -> str:
    scores = ", ".join(f"{point[table.metric]:.4g}" for point in run["points"])
    busy = ", ".join(f"{side.upper()} {1000 * spent:.1f}" for side, spent in run["busy_s"].items())
    return f"{scores}; {run['cpu_s']:.0f} CPU s; {busy} ms a step"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.asynchronous_quality")
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("data", nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--probes", action="store_true", help="more rows, to see what a difference comes from")
    parser.add_argument("--keep", type=Path, default=Path("/tmp/paragan-quality"))
    parser.add_argument("--kimg", type=float)
    parser.add_argument("--points", type=int)
    parser.add_argument("--name", default="", help="of the result, where it is not the whole table")
    parser.add_argument("--no-result", action="store_true", help="print, and write nothing")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    table = TABLES[given.table]
    table = shortened(table, given.kimg or table.kimg, given.points or table.points)
    rows = chosen(given.only, given.probes)
    cost = costs(table, rows, given.data, given.keep)
    runs = measured(table, rows, given.seeds, given.data, given.keep)
    found = result(table, rows, runs, cost)
    print_results(found)
    if not given.no_result:
        part = given.name or "probes" * given.probes
        write("-".join(["asynchronous", table.name, part]).rstrip("-"), found)
        if not part:
            write_plots(table, found, runs)


if __name__ == "__main__":
    main()
