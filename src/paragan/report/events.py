"""What happened in a run, the newest first: sessions, warnings, advice, evaluations, checkpoints."""

from __future__ import annotations

from paragan.report import panels
from paragan.report.record import History, RecordEntry, metric_names
from paragan.report.scale import format_number

_MOST_SCORES, _MOST_METRICS = 20, 3


def list_events(history: History) -> list[tuple[int, str]]:
    """Step and text of each. Of evaluations and checkpoints the newest few."""
    saved = [(step, f"checkpoint {path.rpartition('/')[2]}") for step, path in history.saves]
    first = [event for event in history.events if event == (0, "started")]
    later = [event for event in history.events if event != (0, "started")]
    found = [*first, *_score_events(history.scores), *saved, *later]  # the order within a step
    return sorted(found, key=lambda event: event[0])[::-1]


def _score_events(scores: list[RecordEntry]) -> list[tuple[int, str]]:
    """The newest evaluations; one that is the best by the first metric says so."""
    names = metric_names(scores)[:_MOST_METRICS]
    best = panels.best_evaluation(names[0], scores) if names else None
    return [(moment.step, _score_text(moment, names, moment is best)) for moment in scores[-_MOST_SCORES:]]


def _score_text(moment: RecordEntry, names: list[str], is_best: bool) -> str:
    values = ", ".join(f"{name} {format_number(moment.numbers()[name])}" for name in names if name in moment.numbers())
    return f"score: {values}" + (" (the best)" if is_best else "")
