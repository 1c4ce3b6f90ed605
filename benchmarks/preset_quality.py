"""Scores of `preset=paragan` on four ranks, against synchronous data-parallel training with the same optimisers.

    python -m benchmarks.preset_quality [digits] [ring] [--seeds 5] [--only ROW ...] [--keep FOLDER]
        [--no-result]

Every run is four processes (gloo, one thread each): two of G and two of D, or four of both under `sync`; or one
process, which makes the steps of four (the law "ranks are the batch", tests/distributed/test_laws.py). All rows of a
table have the optimisers of the preset, the same global batch, length, data and initial weights; they differ in
asynchrony, the period H of the synchronisation, and rounding. One judge scores all runs of the digits; the ring has
the distance of `asynchronous_ring`. Finished runs stay in FOLDER, so a table that was stopped resumes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.asynchronous_summary import interval
from benchmarks.preset_ranks import RANKS, ROWS, TABLES, Table, num_ranks, run_rank
from benchmarks.record import write
from paragan import build
from paragan.config import read_recipe
from paragan.features import judge

LIMIT_S = 3600.0  # of a run


def start(target: Callable[..., None], arguments: Sequence[tuple[Any, ...]], limit_s: float) -> bool:
    """Run a forked process for each tuple of arguments; whether all ended well within the limit.

    Forked, so that ranks need not import torch; this process computes nothing itself.
    """
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=target, args=given) for given in arguments]
    for process in processes:
        process.start()
    deadline = time.monotonic() + limit_s
    try:
        while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
            time.sleep(0.1)
            if any(process.exitcode for process in processes):  # the others would wait for it
                break
    finally:
        for process in processes:
            process.kill()
            process.join()
    return all(process.exitcode == 0 for process in processes)


def finished_run(table: Table, row: str, seed: int, keep: Path) -> dict[str, Any]:
    """Return the run of this row and seed: the stored one, if it had these settings."""
    path = keep / f"{table.name}-{row}-{seed}.json".replace(" ", "")
    settings = {**asdict(replace(table, rows=())), **table.settings(row, seed)}
    asked = json.loads(json.dumps(settings))
    if path.is_file() and (stored := json.loads(path.read_text()))["settings"] == asked:
        return dict(stored["run"])
    folder = path.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not start(run_rank, [(n, table, row, seed, keep, folder) for n in range(num_ranks(row))], LIMIT_S):
        texts = [log.read_text(errors="replace")[-1500:] for log in sorted(folder.glob("*.log"))]
        raise SystemExit(f"{path.stem} failed or took more than {LIMIT_S:g} s\n" + "\n".join(texts))
    run = json.loads((folder / "run.json").read_text())
    path.write_text(json.dumps({"settings": asked, "run": run}))
    shutil.rmtree(folder)
    scores = ", ".join(f"{point[table.metric]:.4g}" for point in run["points"])
    print(f"{table.name}, {row}, seed {seed}: {scores}; {run['wall_s']} s", flush=True)
    return dict(run)


def prepare_judge(keep: Path) -> None:
    """Train the judge of all runs of the digits, unless it is there."""
    torch.set_num_threads(1)
    judge.train_or_load(*build.open_data(read_recipe("digits", [])).scored, keep / "judge")


def summary(table: Table, runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return means with intervals, and differences from the first row, `sync`, seed by seed."""
    values = {row: [run["points"][-1][table.metric] for run in of] for row, of in runs.items()}
    ends = {row: interval(of) for row, of in values.items()}
    rows = {row: _row(of, ends[row]) for row, of in runs.items()}
    first, *others = rows
    for row in others if first.startswith("sync") else ():
        rows[row]["less sync"] = _difference(ends, values, first, row)
    scores = {row: [run["points"] for run in of] for row, of in runs.items()}
    return {**asdict(table), "rows": rows, "points of every seed": scores}


def _row(runs: Sequence[Mapping[str, Any]], end: Mapping[str, float]) -> dict[str, Any]:
    steps = [point["step"] for point in runs[0]["points"]]
    names = [name for name in runs[0]["points"][-1] if name not in ("step", "kimg", "seconds")]
    curve = [
        {"step": step, **{name: interval([run["points"][n][name] for run in runs]) for name in names}}
        for n, step in enumerate(steps)
    ]
    lags = {side: sum((Counter(run["lags"][side]) for run in runs), Counter()) for side in "gd"}
    seconds = interval([run["wall_s"] for run in runs])
    return {"end": end, "curve": curve, "lags": lags, "wall_s": seconds, "config of seed 0": runs[0]["config"]}


def _difference(
    ends: Mapping[str, Mapping[str, float]], values: Mapping[str, Sequence[float]], sync: str, row: str
) -> dict[str, Any]:
    distance = abs(ends[row]["mean"] - ends[sync]["mean"])
    found = interval([b - a for a, b in zip(values[sync], values[row], strict=True)])
    return {
        **found,
        "is zero within it": abs(found["mean"]) <= found["half"],
        "its mean is within the interval of sync": distance <= ends[sync]["half"],
        "the mean of sync is within its interval": distance <= ends[row]["half"],
    }


def print_table(found: Mapping[str, Any]) -> None:
    """Print the table as the page has it."""
    batch, steps = found["batch"], found["steps"]
    print(f"\n{found['name']}, {steps:,} steps of {batch}\n| row | {found['metric']} | less sync | in sync's | s |")
    print("|---|---:|---:|---|---:|")
    for name, row in found["rows"].items():
        less = row.get("less sync")
        texts = ("", "") if less is None else (_text(less), str(less["its mean is within the interval of sync"]))
        print(f"| {name} | {_text(row['end'])} | {texts[0]} | {texts[1]} | {row['wall_s']['mean']:.0f} |")


def _text(value: Mapping[str, float]) -> str:
    return f"{value['mean']:.3g} ± {value['half']:.2g}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.preset_quality")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=list(ROWS))
    parser.add_argument("--keep", type=Path, default=Path("/tmp/paragan-preset-quality"))
    parser.add_argument("--no-result", action="store_true", help="print, and write nothing")
    given = parser.parse_args(words)
    if unknown := sorted(set(given.tables) - TABLES.keys()):
        parser.error(f"unknown table {unknown[0]!r}; choose from {', '.join(TABLES)}")
    os.environ["OMP_NUM_THREADS"] = "1"
    given.keep.mkdir(parents=True, exist_ok=True)
    if not start(prepare_judge, [(given.keep,)], LIMIT_S):
        raise SystemExit("the judge could not be trained")
    tables = {}
    for name in given.tables or TABLES:
        table = TABLES[name]
        rows = [row for row in table.rows if given.only is None or row in given.only]
        runs: dict[str, list[dict[str, Any]]] = {row: [] for row in rows}
        for seed in range(given.seeds):
            for row in rows:
                runs[row].append(finished_run(table, row, seed, given.keep))
        tables[name] = summary(table, runs)
        print_table(tables[name])
    if not given.no_result:
        write("-".join(["preset-quality", *given.tables]), {"ranks": RANKS, "threads of a rank": 1, "tables": tables})


if __name__ == "__main__":
    main()
