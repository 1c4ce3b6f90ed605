"""Terminal view of a run (`paragan watch`).

Text from the record is never interpreted as markup or control codes.
"""

from collections.abc import Collection
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paragan.report import panels
from paragan.report.grid_record import GridHistory
from paragan.report.record import History
from paragan.report.record_values import metric_names, single_line, to_mapping
from paragan.report.run_state import RunState, format_duration, run_state
from paragan.report.scale import format_number
from paragan.report.series import Series

_BLOCKS = "▁▂▃▄▅▆▇█"
_BAR_WIDTH = 60
_SPARK_WIDTH = 24
_MAX_SERIES = 24
_MAX_SCORES = 8
_MAX_METRICS = 6
_MAX_MESSAGES = 4
_LOSSES = (("D loss", "d/loss/adversarial"), ("G loss", "g/loss/adversarial"))
_PACE = ("images_per_s", "data_wait")
_STATES = {"running": "bold blue", "finished": "bold green", "failed": "bold red"}


def render_run(folder: Path, history: History) -> RenderableType:
    """Return progress, values with sparklines, evaluations, advice and events, top to bottom."""
    state = run_state(folder, history)
    name = single_line(history.start.get("recipe")) or folder.resolve().name
    reason = f"{state.reason}  " if state.reason != state.word else ""
    place = f"  {reason}step {history.step:,}  {format_duration(history.seconds)}"
    word = (state.word, _STATES.get(state.word, "bold yellow"))
    parts: list[RenderableType] = [Text.assemble((name, "bold"), "  ", word, place)]
    if total := history.total_kimg:
        done = int(min(1.0, history.kimg / total) * _BAR_WIDTH)
        parts.append(Text.assemble(("━" * done, "blue"), ("━" * (_BAR_WIDTH - done), "dim")))
    length = f" of {format_number(total)}" if total else ""
    parts += [Text("  ".join([f"{format_number(history.kimg)}{length} kimg", *_pace(state, history)])), Text()]
    parts += [*_series_table(history), *_scores_table(history)]
    if words := _generation_words(history.population):
        parts += [Text("  ".join(words)), Text()]
    if history.damage:
        parts.append(Text(f"! the run has {history.damage}", "yellow"))
    advice = list(history.advice.values())[-_MAX_MESSAGES:]
    parts += [Text(f"! {single_line(entry.values.get('means'))}", "yellow") for entry in advice]
    parts += [Text(f"step {step:,}  {text}", "dim") for step, text in list(history.events)[-_MAX_MESSAGES:]]
    return Group(*parts)


def summary_line(folder: Path, history: History) -> str:
    """Return the run in one line, for logs."""
    state = run_state(folder, history)
    total = history.total_kimg
    length = f"/{format_number(total)}" if total else ""
    parts = [state.word, f"step {history.step:,}", f"{format_number(history.kimg)}{length} kimg"]
    parts += _pace(state, history)
    known = {label: series.last for label, name in _LOSSES if (series := history.series.get(name))}
    latest = history.scores[-1].numbers if history.scores else {}
    known |= {name: latest[name] for name in metric_names(history.scores) if name in latest}
    parts += [f"{name} {format_number(value)}" for name, value in known.items()]
    if history.damage:
        parts.append(history.damage)
    return "  ".join([*parts, *_generation_words(history.population)]).replace("−", "-")


def sparkline(series: Series) -> str:
    """Return the means of a series as a row of blocks, the latest at the right; "?" for a gap."""
    count = min(_SPARK_WIDTH, len(series.points))
    values = [series.points[(n + 1) * len(series.points) // count - 1].value for n in range(count)]
    finite = [v for v in values if v is not None]
    low = min(finite, default=0.0)
    span = max(finite, default=0.0) - low
    # 7.999 of 8 blocks, so that the largest value has the last one
    return "".join(
        "?" if v is None else _BLOCKS[int((v - low) / span * 7.999) if 0 < span < 1e308 else 0] for v in values
    )


def plain_table(*columns: str, left: Collection[int] = (0,)) -> Table:
    """Return a table without lines. left: columns that are aligned to the left."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=any(columns))
    table.caption_justify = "left"
    for number, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if number in left else "right", overflow="fold")
    return table


def _pace(state: RunState, history: History) -> list[str]:
    rate, wait, readers, depth = (
        None if (series := history.series.get(name)) is None else series.last
        for name in (*_PACE, "loading/readers", "loading/depth")
    )
    total = history.total_kimg
    noun = "samples" if "tensors" in to_mapping(history.start.get("data")) else "images"
    parts = [] if rate is None else [f"{format_number(rate)} {noun}/s"]
    if rate is not None and rate > 0 and total and state.word == "running":
        parts.append(f"ETA {format_duration(max(0.0, total - history.kimg) * 1000 / rate)}")
    if wait is not None:
        parts.append(f"data wait {wait:.1%}")
    if readers is not None and depth is not None:
        parts.append(f"{readers:.0f} readers, {depth:.0f} batches ahead")
    return parts


def _series_table(history: History) -> list[RenderableType]:
    known = history.population.curves | history.series
    names = [name for name in panels.sort_by_panel(known) if name not in _PACE]
    table = plain_table("", "now", "history", left=(0, 2))
    for name in names[:_MAX_SERIES]:
        table.add_row(Text(name), Text(format_number(known[name].last)), Text(sparkline(known[name])))
    return [table, Text()] if names else []


def _scores_table(history: History) -> list[RenderableType]:
    """Return a table of the latest evaluations and of the best by each metric, in order of time."""
    names = metric_names(history.scores)[:_MAX_METRICS]
    if not names:
        return []
    best = {name: panels.best_evaluation(name, history.scores) for name in names}
    listed = {id(entry) for entry in [*history.scores[-_MAX_SCORES:], *best.values()]}
    table = plain_table("step", "kimg", *(name.replace("_", " ") for name in names))
    for entry in history.scores:
        if id(entry) not in listed:
            continue
        row = [Text(f"{entry.step:,}"), Text(format_number(entry.kimg))]
        for name in names:
            value = "" if name not in entry.numbers else format_number(entry.numbers[name])
            row.append(Text(f"{value} *", "bold") if entry is best[name] else Text(f"{value}  "))
        table.add_row(*row)
    table.caption = "* best so far" if any(best.values()) else None
    return [table, Text()]


def _generation_words(history: GridHistory) -> list[str]:
    """Return the latest generation in a few words; none without one."""
    if history.latest is None:
        return []
    median = history.curves.get("score/median")
    words = (history.latest.best_text, f"median {format_number(median.last)}" if median else "")
    return [f"generation {history.latest.number:,}", *filter(None, words)]
