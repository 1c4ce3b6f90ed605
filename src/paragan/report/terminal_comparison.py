"""Comparison of runs as tables for the terminal, and as JSON."""

import math
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from paragan.report.comparison import ComparedRun, ComparedValue, Comparison, ScoreRow, listed_settings
from paragan.report.run_state import format_duration
from paragan.report.scale import format_number
from paragan.report.terminal import plain_table


def render_comparison(comparison: Comparison) -> RenderableType:
    """Return runs, scores, protocols and settings that differ, top to bottom.

    Text of the records is never interpreted as markup or control codes.
    """
    labels = [run.label for run in comparison.runs]
    runs = plain_table("", "run", "state", "kimg", "time", left=range(5))
    for run in comparison.runs:
        runs.add_row(*map(Text, run_texts(run)))
    parts: list[RenderableType] = [runs, Text()]
    if comparison.scores:
        scores = plain_table("score", *labels, left=range(len(labels) + 1))
        for row in comparison.scores:
            scores.add_row(Text(row.metric), *(_score_cell(row, n) for n in range(len(labels))))
        marks = ["* best of the row"] if any(row.best is not None for row in comparison.scores) else []
        if not all(row.compares for row in comparison.scores):
            marks.append("≠n: measured by protocol n, does not compare")
        scores.caption = "; ".join(marks) or None
        parts += [scores, Text()]
    settings, num_others = listed_settings(comparison)
    fields = comparison.protocol_differences
    for head, columns, rows in (("field", comparison.protocol_names, fields), ("setting", labels, settings)):
        table = plain_table(head, *columns, left=range(len(columns) + 1))
        for name, texts in rows:
            table.add_row(Text(name), *map(Text, texts))
        if rows:
            parts += [table, Text()]
    if not settings:
        parts.append(Text("no setting differs"))
    if num_others:
        parts.append(Text(f"and {num_others:,} more settings"))
    return Group(*parts, *(Text(f"warning: {line}", "yellow") for line in comparison.warnings))


def run_texts(run: ComparedRun) -> list[str]:
    """Return label, name, state, kimg and training time of a run."""
    history = run.history
    return [run.label, run.name, run.state.word, format_number(history.kimg), format_duration(history.seconds)]


def value_text(value: ComparedValue | None) -> str:
    """Return a value with its interval."""
    if value is None:
        return "–"
    ends = "" if value.interval is None else " [{}, {}]".format(*map(format_number, value.interval))
    return format_number(value.value) + ends


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON values by run label; numbers that are not finite are null."""
    labels = [run.label for run in comparison.runs]
    settings = {key: dict(zip(labels, texts, strict=True)) for key, texts in comparison.setting_differences}
    protocols = dict(comparison.protocol_differences)
    scores = {
        row.metric: {
            "comparable": row.compares,
            "best": None if row.best is None else labels[row.best],
            "values": {label: _value_json(v) for label, v in zip(labels, row.values, strict=True) if v is not None},
        }
        for row in comparison.scores
    }
    runs = {run.label: _run_json(run) for run in comparison.runs}
    warnings = comparison.warnings
    return {"runs": runs, "settings": settings, "protocols": protocols, "scores": scores, "warnings": warnings}


def _run_json(run: ComparedRun) -> dict[str, Any]:
    history = run.history
    position = {"step": history.step, "kimg": history.kimg, "seconds": history.seconds}
    return {"name": run.name, "path": str(run.folder), "state": run.state.word} | position


def _value_json(value: ComparedValue) -> dict[str, Any]:
    entry = value.entry
    return {
        "value": _finite(value.value),
        "interval": value.interval,
        "last": _finite(value.last),
        "protocol": value.protocol + 1,
        "step": entry.step,
        "kimg": entry.kimg,
        "seconds": entry.seconds,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _score_cell(row: ScoreRow, index: int) -> Text:
    value = row.values[index]
    text = value_text(value)
    if value is not None and not row.compares:
        return Text(f"{text} ≠{value.protocol + 1}", "yellow")
    return Text(f"{text} *", "bold") if index == row.best else Text(text)
