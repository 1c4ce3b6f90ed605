"""Events of a run, the latest first: sessions, warnings, advice, evaluations, checkpoints."""

from __future__ import annotations

from paragan.report import panels
from paragan.report.record import History, RecordEntry, metric_names
from paragan.report.scale import format_number

_MAX_SCORES = 20
_MAX_METRICS = 3


def list_events(history: History) -> list[tuple[int, str]]:
    """Return step and text of each event, with only the latest evaluations and checkpoints."""
    saved = [(step, f"checkpoint {path.rpartition('/')[2]}") for step, path in history.saves]
    first = [event for event in history.events if event == (0, "started")]
    later = [event for event in history.events if event != (0, "started")]
    ordered = [*first, *_score_events(history.scores), *saved, *later]  # the order within a step
    return sorted(ordered, key=lambda event: event[0])[::-1]


def _score_events(scores: list[RecordEntry]) -> list[tuple[int, str]]:
    """Return the latest evaluations, with a mark on the best by the first metric."""
    names = metric_names(scores)[:_MAX_METRICS]
    best = panels.best_evaluation(names[0], scores) if names else None
    latest = scores[-_MAX_SCORES:]
    return [(entry.step, _score_text(entry, names, entry is best)) for entry in latest]


def _score_text(entry: RecordEntry, names: list[str], is_best: bool) -> str:
    numbers = entry.numbers()
    values = ", ".join(f"{name} {format_number(numbers[name])}" for name in names if name in numbers)
    return f"score: {values}" + (" (best)" if is_best else "")
