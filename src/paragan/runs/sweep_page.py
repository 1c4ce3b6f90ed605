"""Page of a sweep: a table of all its runs, and the comparison of the best."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paragan.report.comparison import MAX_RUNS, read_comparison
from paragan.report.comparison_page import save_comparison
from paragan.report.run_state import run_state
from paragan.report.scale import format_number
from paragan.runs.sweep import SweepScore, history_of, newest_score
from paragan.runs.sweep_plan import Sweep, SweepRun


def save_sweep_page(sweep: Sweep) -> Sequence[Sequence[str]]:
    """Write `sweep.html` once two runs have begun; return the rows of its table, the best run first."""
    begun = [run for run in sweep.runs if (sweep.folder / run.name / "metrics.jsonl").exists()]
    scores = {run.name: newest_score(sweep.folder / run.name) for run in begun}
    begun.sort(key=lambda run: _cost(scores[run.name]))
    rows = [_row(sweep, run, scores[run.name]) for run in begun]
    rows += [[run.name, "not begun", "–", "–"] for run in sweep.runs if run not in begun]
    if len(begun) > 1:
        comparison = read_comparison([sweep.folder / run.name for run in begun[:MAX_RUNS]])
        save_comparison(comparison, sweep.folder / "sweep.html", rows)
    return rows


def _row(sweep: Sweep, run: SweepRun, score: SweepScore | None) -> list[str]:
    """Return name, state, kimg and score."""
    history = history_of(sweep.folder / run.name)
    state = run_state(sweep.folder / run.name, history)
    text = "–" if score is None else f"{score.metric} {format_number(score.value)}"
    return [run.name, state.word, format_number(history.kimg), text]


def _cost(score: SweepScore | None) -> float:
    return math.inf if score is None else score.cost
