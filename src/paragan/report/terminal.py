"""Terminal view of a run (`paragan watch`).

Text from the record is never interpreted as markup or control codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paragan.report import panels
from paragan.report.record import History
from paragan.report.record_entry import RecordEntry, metric_names
from paragan.report.record_values import single_line
from paragan.report.run_state import format_duration, run_state
from paragan.report.scale import format_number
from paragan.report.series import Series
from paragan.report.terminal_grid import generation_text, render_grid

_BLOCKS = "▁▂▃▄▅▆▇█"
_BAR_WIDTH = 60
_SPARK_WIDTH = 24
_MAX_SCORES = 8
_MAX_MESSAGES = 4
_LOSSES = (("D", "d/loss/adversarial"), ("G", "g/loss/adversarial"))
_PACE = ("images_per_s", "data_wait")
_STYLES = {"running": "bold blue", "finished": "bold green", "failed": "bold red"}


def render_run(folder: Path, history: History) -> RenderableType:
    """Return progress, values with sparklines, evaluations, advice and events, top to bottom."""
    gap = Text()
    parts: list[RenderableType | None]
    parts = [_header(folder, history), *_progress(folder, history), gap]
    parts += [_series_table(history), gap, _scores_table(history), gap]
    parts += [*grid, gap] if (grid := render_grid(history.population)) else []
    advice = list(history.advice.values())[-_MAX_MESSAGES:]
    events = list(history.events)[-_MAX_MESSAGES:]
    lines = [Text(f"! {single_line(entry.values.get('means'))}", "yellow") for entry in advice]
    lines += [Text(f"step {step:,}  {text}", "dim") for step, text in events]
    return Group(*(part for part in [*parts, *lines] if part is not None))


def summary_line(folder: Path, history: History) -> str:
    """Return the run in one line, for logs."""
    state = run_state(folder, history)
    total = history.total_kimg
    length = f"/{format_number(total)}" if total else ""
    parts = [state.word, f"step {history.step:,}"]
    parts += [f"{format_number(history.kimg)}{length} kimg", *_pace(folder, history)]
    losses = [(label, history.series.get(name)) for label, name in _LOSSES]
    parts += [f"{label} {format_number(loss.last)}" for label, loss in losses if loss is not None]
    parts += [f"{name} {format_number(value)}" for name, value in _last_score(history).items()]
    parts += [generation] if (generation := generation_text(history.population)) else []
    return "  ".join(parts).replace("−", "-")


def _header(folder: Path, history: History) -> Text:
    state = run_state(folder, history)
    name = single_line(history.start.get("recipe")) or folder.resolve().name
    reason = f"{state.reason}  " if state.reason != state.word else ""
    return Text.assemble(
        (name, "bold"),
        "  ",
        (state.word, _STYLES.get(state.word, "bold yellow")),
        f"  {reason}step {history.step:,}  {format_duration(history.seconds)}",
    )


def _progress(folder: Path, history: History) -> list[RenderableType]:
    total = history.total_kimg
    length = f" of {format_number(total)}" if total else ""
    line = Text("  ".join([f"{format_number(history.kimg)}{length} kimg", *_pace(folder, history)]))
    if not total:
        return [line]
    done = int(min(1.0, history.kimg / total) * _BAR_WIDTH)
    return [Text.assemble(("━" * done, "blue"), ("━" * (_BAR_WIDTH - done), "dim")), line]


def _pace(folder: Path, history: History) -> list[str]:
    known = [history.series.get(name) for name in _PACE]
    rate, wait = (None if series is None else series.last for series in known)
    total = history.total_kimg
    parts = []
    if rate is not None:
        parts.append(f"{format_number(rate)} images/s")
        if total and rate > 0 and run_state(folder, history).word == "running":
            parts.append(f"ETA {format_duration(max(0.0, total - history.kimg) * 1000 / rate)}")
    if wait is not None:
        parts.append(f"data wait {wait:.1%}")
    readers = history.series.get("loading/readers")
    depth = history.series.get("loading/depth")
    if readers is not None and depth is not None:
        parts.append(f"{readers.last:.0f} readers, {depth.last:.0f} batches ahead")
    return parts


def _series_table(history: History) -> Table | None:
    known = history.population.curves | history.series
    names = [name for name in panels.sort_by_panel(known) if name not in _PACE]
    table = _table("", "now", "history")
    for name in names[:_SPARK_WIDTH]:
        series = known[name]
        table.add_row(Text(name), Text(format_number(series.last)), Text(sparkline(series)))
    return table if names else None


def _scores_table(history: History) -> Table | None:
    names = metric_names(history.scores)[:6]
    if not names:
        return None
    best = {name: panels.best_evaluation(name, history.scores) for name in names}
    table = _table("step", "kimg", *(name.replace("_", " ") for name in names))
    for entry in _latest_and_best(history.scores, best.values()):
        values = entry.numbers
        cells = [_score_cell(values.get(name), entry is best[name]) for name in names]
        table.add_row(Text(f"{entry.step:,}"), Text(format_number(entry.kimg)), *cells)
    table.caption = "* best so far" if any(best.values()) else None
    return table


def _score_cell(value: float | None, is_best: bool) -> Text:
    if value is None:
        return Text("")
    return Text(format_number(value) + (" *" if is_best else "  "), "bold" if is_best else "")


def _latest_and_best(scores: Sequence[RecordEntry], best: Iterable[RecordEntry | None]) -> list[RecordEntry]:
    """Return the latest evaluations and the best ones, in order of time."""
    selected = {id(entry) for entry in [*scores[-_MAX_SCORES:], *best] if entry is not None}
    return [entry for entry in scores if id(entry) in selected]


def _last_score(history: History) -> dict[str, float]:
    values = history.scores[-1].numbers if history.scores else {}
    return {name: values[name] for name in metric_names(history.scores) if name in values}


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.caption_justify = "left"
    for n, column in enumerate(columns):
        side: Literal["left", "right"] = "left" if n == 0 or column == "history" else "right"
        table.add_column(Text(column), justify=side, no_wrap=n < 2, min_width=7 if n < 2 else None)
    return table


def sparkline(series: Series) -> str:
    """Return the means of a series as a row of blocks, the latest at the right; "?" for a gap."""
    count = min(_SPARK_WIDTH, len(series.buckets))
    chosen = [series.buckets[(n + 1) * len(series.buckets) // count - 1].mean for n in range(count)]
    finite = [v for v in chosen if v is not None]
    if not finite:
        return "?" * count
    low = min(finite)
    span = max(finite) - min(finite)
    return "".join(
        "?" if v is None else _BLOCKS[int((v - low) / span * 7.999) if 0 < span < 1e308 else 0] for v in chosen
    )
