"""Report page of a run, rendered from its folder alone."""

from __future__ import annotations

import time
from itertools import chain
from pathlib import Path
from typing import Any

from paragan.core.files import write_text
from paragan.report import panels, run_facts
from paragan.report.chart import run_end, script_data
from paragan.report.metric_notes import explanation, reliability
from paragan.report.record import History, open_record
from paragan.report.record_values import dotted_settings, first_items, metric_names, single_line, to_mapping, to_number
from paragan.report.rendering import render_page
from paragan.report.run_state import format_duration, read_small_text, run_state
from paragan.report.sample_media import Frame, SampleFrames, read_audio, track_data
from paragan.report.scale import format_number

_MAX_CONFIG = 200_000  # characters
_SECTIONS = ("game", "telemetry", "pace", "loading", "other")


class Page:
    """Report of a run; rendering again only reads new lines and encodes new samples."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = open_record(folder)
        self.frames = SampleFrames(folder=folder)

    def render(self) -> str:
        """Return the page as HTML. Until the run ends, it reloads itself where it is served over HTTP."""
        self.record.read()
        history = self.record.history
        view = _view(self.folder, history, self.frames.choose(history.samples))
        return render_page("report.html.j2", view, reloads=view["state"].word == "running")

    def save(self, path: Path | None = None) -> Path:
        """Render the page and write it atomically, by default as report.html of the run folder."""
        path = path or self.folder / "report.html"
        write_text(path, self.render())
        return path


def _view(folder: Path, history: History, frames: list[Frame]) -> dict[str, Any]:
    end = run_end(history.kimg, history.seconds)
    names = metric_names(history.scores)
    charts = {id: panels.section_charts(id, history.series, end) for id in _SECTIONS}
    metrics = panels.metric_charts(history.scores, end)
    cells = None
    if history.population.grid is not None:
        from paragan.report.population import population_section

        cells = population_section(history.population, end)
    drawn = [*metrics, *(cells.charts if cells else ()), *chain.from_iterable(charts.values())]
    return _header(folder, history) | {
        "numbers": [_key_number(name, history) for name in names],
        "accuracy": reliability(history.protocol),
        "left_out": max(0, history.max_metrics - len(names)),
        "frames": frames,
        "audio": read_audio(folder, history.samples),
        "tracks": [{"tone": None, "dash": 0}] if frames else [],
        "columns": _columns(history),
        "rows": [single_line(row, 60) for row in first_items(history.rows)],
        "metrics": metrics,
        "meanings": [(name, text) for name in names if (text := explanation(name))],
        "delays": history.delays.tables(),
        "phases": history.phases.rows(),
        "sections": [(panels.TITLES[id], charts[id]) for id in _SECTIONS if charts[id]],
        "population": cells,
        "data": {
            "tracks": [track_data(frames)] if frames else [],
            "stops": [[number] for number in range(len(frames))],
            "end": end,
            "one_run": True,
        }
        | script_data(drawn),
        "advice": [run_facts.advice_texts(entry) for entry in reversed(history.advice.values())],
        "events": run_facts.list_events(history),
        "changed": run_facts.changed_settings(history.start),
        "config": read_small_text(folder / "config.yaml")[:_MAX_CONFIG],
        "protocol": dotted_settings(history.protocol),
    }


def _columns(history: History) -> object:
    if history.columns is None:
        return None
    from paragan.report.columns import columns_section

    return columns_section(history.columns)


def _header(folder: Path, history: History) -> dict[str, Any]:
    state = run_state(folder, history)
    total = history.total_kimg
    return {
        "name": single_line(folder.resolve().name) or "run",
        "recipe": single_line(history.start.get("recipe")),
        "state": state,
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(state.written)),
        "history": history,
        "total": total,
        "share": min(1.0, history.kimg / total) if total else None,
        "spent": format_duration(history.seconds),
        "facts": run_facts.header_facts(history),
        "commands": run_facts.list_commands(folder, history),
    }


def _key_number(name: str, history: History) -> dict[str, str]:
    with_metric = [entry for entry in history.scores if name in entry.numbers]
    real = to_number(to_mapping(history.real).get(name))
    last = with_metric[-1]
    best = panels.best_evaluation(name, with_metric)
    value, best_value = (format_number(entry.numbers[name]) for entry in (last, best or last))
    is_best = best is not None and best_value == value
    return {
        "name": name,
        "explanation": explanation(name),
        "value": value,
        "where": f"at {format_number(last.kimg)} kimg, the last" + (" and best" if is_best else ""),
        "best": "" if best is None or is_best else f"{best_value} at {format_number(best.kimg)} kimg",
        "real": "" if real is None else format_number(real),
    }
