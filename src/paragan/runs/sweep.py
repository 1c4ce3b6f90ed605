"""Sweep: one run for each combination of settings, each started by `launch` in a folder of the sweep.

All but `sweep.json` is read from the run folders, so that the same command continues a sweep: what
has finished is not trained again.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paragan.core.errors import PREEMPTED, ConfigError, ParaganError
from paragan.core.files import read_bytes
from paragan.core.interrupt import Interrupt
from paragan.core.local_processes import LocalProcesses
from paragan.core.printable import to_printable
from paragan.report.metric_notes import note_of
from paragan.report.record import History, metric_names, open_record
from paragan.runs.cluster_runs import is_queued
from paragan.runs.folder import RunFolder
from paragan.runs.sweep_plan import Rung, Sweep, SweepRun, recorded_rungs, write_plan

_PAUSE_S = 0.1
_LAUNCH_S = 300.0
_SAVE_S = 30.0  # added to `timeout_s`
_MOST_BYTES = 1 << 24
_FINAL = (1, ParaganError.exit_code)


@dataclass(frozen=True)
class SweepScore:
    """Newest score of a run by the metric that ranks checkpoints. cost: lower is better."""

    metric: str
    value: float
    cost: float


def run_sweep(sweep: Sweep, interrupt: Interrupt, report: Callable[[str], None]) -> int:
    """Train what has not finished; return the exit code. report: called with news.

    Raises `ConfigError` if the folder holds a sweep with other settings.
    """
    rungs: list[Rung] = []
    recorded = recorded_rungs(sweep)
    runs = sweep.runs
    kimg = sweep.kimg if sweep.halving_kimg is None else min(sweep.halving_kimg, sweep.kimg)
    while kimg < sweep.kimg and len(runs) > 1:
        rung = _find(recorded, runs, kimg)
        if rung is None:
            write_plan(sweep, rungs)
            if (code := _train_rung(sweep, runs, kimg, interrupt, report)) is not None:
                return code
            rung = _rank_runs(sweep, runs, kimg)
            report(f"after {kimg:g} kimg: {len(rung.selected)} of {len(runs)} runs continue")
        rungs.append(rung)
        runs = tuple(run for run in runs if run.name in rung.selected)
        kimg *= 2
    write_plan(sweep, rungs)
    code = _train_rung(sweep, runs, sweep.kimg, interrupt, report)
    return code or max((_failure(sweep.folder / run.name) for run in runs), default=0)


def refuse_launch(sweep: Sweep) -> None:
    """Raise `ConfigError` if `launch` refuses the sweep's first run."""
    command = [*sweep.command(sweep.runs[0], sweep.kimg), "--dry-run"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_LAUNCH_S, check=False)
    if ended.returncode:
        line = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        raise ConfigError(f"--launch {shlex.join(sweep.launch)}: {line}")


def is_complete(folder: Path, kimg: float) -> bool:
    """Return whether a run has finished at this length or a greater one."""
    return RunFolder(folder).is_finished() and history_of(folder).kimg >= kimg * (1 - 1e-9)


def history_of(folder: Path) -> History:
    """Return the record of a run folder."""
    record = open_record(folder)
    record.read()
    return record.history


def newest_score(folder: Path) -> SweepScore | None:
    """Return the newest score of a run; None without one that ranks."""
    if not (folder / "metrics.jsonl").exists() or not (entries := history_of(folder).scores):
        return None
    entry = entries[-1]
    for metric in metric_names([entry]):
        if direction := note_of(metric, entry.values).direction:
            value = entry.numbers.get(metric, float("nan"))
            return SweepScore(metric, value, -direction * value) if value == value else None
    return None


def _train_rung(
    sweep: Sweep, runs: Sequence[SweepRun], kimg: float, interrupt: Interrupt, report: Callable[[str], None]
) -> int | None:
    """Train all runs up to a length; return the exit code with which the sweep ends here, if it does."""
    incomplete = [run for run in runs if not is_complete(sweep.folder / run.name, kimg)]
    waiting = [run for run in incomplete if not _is_queued(sweep, run)]
    codes = _start_runs(sweep, waiting, kimg, interrupt)
    absent = [run for run in runs if not _is_settled(sweep.folder / run.name, kimg)]
    if not (absent or interrupt.requested):
        return None
    code = PREEMPTED if interrupt.requested else max(abs(codes.get(run.name, 0)) for run in absent)
    hint = f"{len(absent)} of {len(runs)} runs have not finished; run the same command "
    report(hint + ("to continue" if code else "when they have"))
    return code


def _is_queued(sweep: Sweep, run: SweepRun) -> bool:
    """Return whether an earlier call has submitted a run whose job still waits or runs."""
    found = sweep.log(run).exists() and is_queued(sweep.launch[0], sweep.job_name(run))
    if found:
        print(f"queued: {run.name}", flush=True)
    return found


def _start_runs(sweep: Sweep, runs: Sequence[SweepRun], kimg: float, interrupt: Interrupt) -> dict[str, int]:
    """Start runs, `jobs` at a time, and wait; return the exit codes. A request to stop stops all."""
    names = [run.name for run in runs]
    reported: set[int] = set()
    (sweep.folder / "logs").mkdir(parents=True, exist_ok=True)
    with LocalProcesses() as processes:
        while len(reported) < len(runs) and not interrupt.requested:
            started = len(processes.processes)
            if started < len(runs) and len(processes.running) < sweep.jobs:
                print(f"starting: {names[started]}, to {kimg:g} kimg", flush=True)
                processes.start(sweep.command(runs[started], kimg), log=sweep.log(runs[started]))
            time.sleep(_PAUSE_S)
            _report_ends(processes, names, reported)
        save_s = sweep.timeout_s + _SAVE_S
        codes = processes.supervise(interrupt, save_s, save_s)
    return dict(zip(names, codes, strict=False))


def _report_ends(processes: LocalProcesses, names: Sequence[str], reported: set[int]) -> None:
    for number, code in enumerate(processes.codes):
        if code is not None and number not in reported:
            reported.add(number)
            reason = "" if code == 0 else f": {processes.exit_reason(number)}"
            print(to_printable(f"ended: {names[number]}{reason}"), flush=True)


def _is_settled(folder: Path, kimg: float) -> bool:
    """Return whether a run has finished, or failed in a way that another start would repeat."""
    return is_complete(folder, kimg) or bool(_failure(folder))


def _failure(folder: Path) -> int:
    """Return the exit code of a run that failed for good; 0 for any other."""
    try:
        code = json.loads(read_bytes(folder / "exit.json", _MOST_BYTES)).get("code")
    except (OSError, ValueError, AttributeError):
        return 0
    return code if code in _FINAL else 0


def _find(rungs: Sequence[Rung], runs: Sequence[SweepRun], kimg: float) -> Rung | None:
    names = tuple(run.name for run in runs)
    return next((rung for rung in rungs if (rung.kimg, rung.runs) == (kimg, names)), None)


def _rank_runs(sweep: Sweep, runs: Sequence[SweepRun], kimg: float) -> Rung:
    """Return the better half of the runs; those that failed have no score. `ConfigError`: all did."""
    found = {run.name: newest_score(sweep.folder / run.name) for run in runs if not _failure(sweep.folder / run.name)}
    scores = {name: score for name, score in found.items() if score is not None}
    best = sorted(scores, key=lambda name: scores[name].cost)[: (len(runs) + 1) // 2]
    if not best:
        hint = "evaluation.metrics needs one that ranks, such as fd, and a run that does not fail"
        raise ConfigError(f"--halving: no run has a score after {kimg:g} kimg; {hint}")
    values = {name: score.value for name, score in scores.items()}
    return Rung(kimg, tuple(run.name for run in runs), values, tuple(best))
