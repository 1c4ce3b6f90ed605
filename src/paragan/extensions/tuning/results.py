"""Results of a study: lines, `trials.csv`, `trials.png`, and the command that trains the winner."""

from __future__ import annotations

import csv
import io
import math
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from paragan.core.command import program_command
from paragan.core.files import write_bytes, write_text
from paragan.extensions.tuning.space import Value, trial_words
from paragan.extensions.tuning.study import StudyPlan, TrialRecord
from paragan.report.figure import COLOURS, render_figure
from paragan.report.scale import format_number
from paragan.runs.run_request import run_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_COLUMNS = 3  # of the picture


def best_trial(plan: StudyPlan, trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the complete trial with the best score; None without one."""
    return next((trial for trial in _ranked(plan, trials) if trial.state == "complete"), None)


def trial_line(plan: StudyPlan, trials: Sequence[TrialRecord], number: int) -> str:
    """Return a line about a trial that has just ended."""
    trial = next(trial for trial in trials if trial.number == number)
    best = best_trial(plan, trials)
    outcome = trial.reason or trial.state
    values = " ".join(f"{key}={_short(value)}" for key, value in trial.values.items())
    line = f"trial {number} ({len(trials)} of {plan.max_trials}): {plan.goal} {_score(trial)}, {outcome}, {values}"
    return line if best is None else f"{line}; best: trial {best.number} with {_score(best)}"


def trial_rows(plan: StudyPlan, trials: Sequence[TrialRecord]) -> list[list[str]]:
    """Return rows of texts with a head: the best trial first, those without a score last."""
    keys = [dimension.key for dimension in plan.dimensions]
    rows = [["trial", "state", plan.goal, *keys]]
    for trial in _ranked(plan, trials):
        rows.append([str(trial.number), trial.state, _score(trial), *(_short(trial.values[key]) for key in keys)])
    return rows


def write_results(plan: StudyPlan, trials: Sequence[TrialRecord], folder: Path) -> str:
    """Write `trials.csv` and `trials.png`; return a line about both."""
    write_text(folder / "trials.csv", _as_csv(plan, trials))
    if find_spec("matplotlib") is None:
        return f"{folder / 'trials.csv'}; for a plot of the trials run {sys.executable} -m pip install 'paragan[plot]'"
    height = 3.0 * math.ceil(len(plan.dimensions) / _MAX_COLUMNS)
    picture = render_figure(plan.recipe, (10.0, height), lambda figure: _draw(figure, plan, trials), "png")
    write_bytes(folder / "trials.png", picture)
    return f"{folder / 'trials.csv'}, {folder / 'trials.png'}"


def winner_command(plan: StudyPlan, best: TrialRecord) -> str:
    """Return the shell command that trains the recipe at the best values, for as long as the recipe says."""
    words = [plan.recipe, *plan.settings, *trial_words(best.values), "--out", f"runs/{run_name(plan.recipe)}-tuned"]
    return f"{program_command()} train {shlex.join(words)}"


def _as_csv(plan: StudyPlan, trials: Sequence[TrialRecord]) -> str:
    keys = [dimension.key for dimension in plan.dimensions]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", plan.goal, "reason", *keys])
    for trial in trials:
        values = (trial.values[key] for key in keys)
        writer.writerow([trial.number, trial.state, trial.value, trial.reason, *values])
    return text.getvalue()


def _ranked(plan: StudyPlan, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return complete trials first, trials without a score last, better scores before others."""

    def order(trial: TrialRecord) -> tuple[bool, bool, float]:
        return trial.state != "complete", trial.value is None, -plan.direction * (trial.value or 0.0)

    return sorted(trials, key=order)


def _score(trial: TrialRecord) -> str:
    return "–" if trial.value is None else format_number(trial.value)


def _short(value: Value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _draw(figure: Figure, plan: StudyPlan, trials: Sequence[TrialRecord]) -> None:
    """Draw the scores over each setting; those of pruned trials are hollow."""
    scored = [trial for trial in trials if trial.value is not None]
    scores = [trial.value for trial in trials if trial.value is not None]
    fills = [COLOURS[0] if trial.state == "complete" else "none" for trial in scored]
    columns = min(_MAX_COLUMNS, len(plan.dimensions))
    rows = math.ceil(len(plan.dimensions) / columns)
    for number, dimension in enumerate(plan.dimensions, start=1):
        axis = figure.add_subplot(rows, columns, number)
        values = [trial.values[dimension.key] for trial in scored]
        axis.scatter(values, scores, s=18, facecolors=fills, edgecolors=COLOURS[0], zorder=3)
        if dimension.kind == "log":
            axis.set_xscale("log")
        axis.set_xlabel(dimension.key)
        axis.set_ylabel(plan.goal)
        axis.grid(alpha=0.4)
