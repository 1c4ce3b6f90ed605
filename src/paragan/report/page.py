"""Report page of a run, rendered from its folder alone."""

import os
import shlex
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from paragan.core.command import program_command
from paragan.core.files import write_text
from paragan.report import panels
from paragan.report.chart import View, run_end, script_data
from paragan.report.metric_notes import explanation, reliability
from paragan.report.record import History, open_record
from paragan.report.record_values import (
    RecordEntry,
    dotted_settings,
    first_items,
    first_pairs,
    metric_names,
    setting_text,
    single_line,
    to_mapping,
    to_number,
)
from paragan.report.rendering import render_page
from paragan.report.run_state import format_duration, read_small_text, run_state
from paragan.report.sample_frames import Frame, SampleFrames, track_data
from paragan.report.scale import format_number

_MAX_CONFIG = 200_000  # characters
_MAX_SCORES = 20  # in the list of events
_MAX_METRICS = 3  # of a score in the list of events
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


def _audio(folder: Path, history: History) -> list[View]:
    if next((folder / "samples").glob("*.wav"), None) is None:
        return []
    from paragan.report.sample_audio import read_audio

    return read_audio(folder, history.samples)


def _view(folder: Path, history: History, frames: list[Frame]) -> View:
    end = run_end(history.kimg, history.seconds)
    names = metric_names(history.scores)
    charts = {id: panels.section_charts(id, history.series, end) for id in _SECTIONS}
    metrics = panels.metric_charts(history.scores, end)
    population = None
    if history.population.grid is not None:
        from paragan.report.population import population_section

        population = population_section(history.population, end)
    all_charts = [*metrics, *(population["charts"] if population else ()), *chain.from_iterable(charts.values())]
    return _header(folder, history) | {
        "numbers": [_key_number(name, history) for name in names],
        "accuracy": reliability(history.protocol),
        "left_out": max(0, history.max_metrics - len(names)),
        "frames": frames,
        "audio": _audio(folder, history),
        "tracks": [{"tone": None, "dash": 0}] if frames else [],
        "columns": _columns(history),
        "rows": [single_line(row, max_length=60) for row in first_items(history.rows)],
        "metrics": metrics,
        "meanings": [(name, text) for name in names if (text := explanation(name))],
        "phases": history.phases.rows(),
        "sections": [(panels.TITLES[id], charts[id]) for id in _SECTIONS if charts[id]],
        "population": population,
        "data": {
            "tracks": [track_data(frames)] if frames else [],
            "stops": [[number] for number in range(len(frames))],
            "end": end,
            "one_run": True,
        }
        | script_data(all_charts),
        "advice": [_advice_texts(entry) for entry in reversed(history.advice.values())],
        "events": list_events(history),
        "changed": _changed_settings(history.start),
        "config": read_small_text(folder / "config.yaml")[:_MAX_CONFIG],
        "protocol": dotted_settings(history.protocol),
    }


def _columns(history: History) -> object:
    if history.columns is None:
        return None
    from paragan.report.columns import columns_section

    return columns_section(history.columns)


def _header(folder: Path, history: History) -> View:
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
        "facts": _header_facts(history),
        "commands": _list_commands(folder, history),
    }


def _key_number(name: str, history: History) -> dict[str, str]:
    """Return the texts of a metric at the top of the page: newest value, best one, and that of real images."""
    with_metric = [entry for entry in history.scores if name in entry.numbers]
    real = to_number(to_mapping(history.real).get(name))
    last = with_metric[-1]
    best = panels.best_evaluation(name, with_metric)
    value, best_value = (format_number(entry.numbers[name]) for entry in (last, best or last))
    is_best = best is not None and best_value == value  # as printed: equal texts would look like a mistake
    return {
        "name": name,
        "explanation": explanation(name),
        "value": value,
        "where": f"at {format_number(last.kimg)} kimg, the last" + (" and best" if is_best else ""),
        "best": "" if best is None or is_best else f"{best_value} at {format_number(best.kimg)} kimg",
        "real": "" if real is None else format_number(real),
    }


def _header_facts(history: History) -> list[str]:
    """Return data, shape of the grid, parameters and device of each player, and ranks; each if known."""
    start = history.start
    data = to_mapping(start.get("data"))
    images = to_number(data.get("images"))
    noun = "samples" if "tensors" in data else "images"
    size = " × ".join(single_line(n) for n in first_items(data.get("shape"), limit=3))
    parts = (single_line(data.get("name")), "" if images is None else f"{images:,.0f} {noun}", size)
    facts = [", ".join(part for part in parts if part)]
    grid = history.population.grid
    facts.append("" if grid is None else grid.shape_text)
    strategies = []
    for key, player in first_pairs(start.get("players")):
        if isinstance(player, Mapping):
            name = single_line(key).upper() if len(single_line(key)) == 1 else single_line(key)
            weights = to_number(player.get("weights"))
            count = "" if weights is None else f" {weights:,.0f} parameters"
            place = f"{single_line(player.get('precision'))} on {single_line(player.get('device'))}"
            facts.append(f"{name}{count}, {place}")
            strategies.append(f"{name} {single_line(player.get('strategy'))}")
    ranks = to_number(start.get("ranks"))
    hosts = to_number(start.get("hosts"))
    if ranks is not None and ranks > 1:
        on = "" if hosts is None else f" on {hosts:,.0f} host{'s' if hosts > 1 else ''}"
        facts.append(f"{ranks:,.0f} ranks{on}: {', '.join(strategies)}")
    return [fact for fact in facts if fact]


def _advice_texts(entry: RecordEntry) -> dict[str, str]:
    """Return the texts of an advice by field."""
    value = to_number(entry.values.get("value"))
    texts = {name: single_line(entry.values.get(name)) for name in ("name", "means", "try", "command")}
    return texts | {"value": "" if value is None else format_number(value), "step": f"{entry.step:,}"}


def list_events(history: History) -> list[tuple[int, str]]:
    """Return step and text of each event, the latest first.

    Of evaluations and checkpoints, only the latest.
    """
    names = metric_names(history.scores)[:_MAX_METRICS]
    best = panels.best_evaluation(names[0], history.scores) if names else None
    scores = []
    for entry in history.scores[-_MAX_SCORES:]:
        known = [(name, entry.numbers[name]) for name in names if name in entry.numbers]
        values = ", ".join(f"{name} {format_number(value)}" for name, value in known)
        scores.append((entry.step, f"score: {values}" + (" (best)" if entry is best else "")))
    saved = [(step, f"checkpoint {path.rpartition('/')[2]}") for step, path in history.saves]
    every = [*scores, *saved, *history.events]
    return sorted(every, key=lambda event: (event[0], event != (0, "started")))[::-1]  # stable within a step


def _changed_settings(start: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return each setting that differs from the recipe, with the value of recipe and run."""
    pairs = [(key, first_items(values)) for key, values in first_pairs(start.get("changed"))]
    return [(single_line(k), setting_text(v[0]), setting_text(v[1])) for k, v in pairs if len(v) == 2]


def _list_commands(folder: Path, history: History) -> list[tuple[str, str]]:
    """Return commands to copy, derived only from the folder because the record is untrusted.

    They never include `--trust`: the user decides whether code named by a config may run. For a finished run, the
    command to continue doubles its length. A run whose networks are defined in a program has none.
    """
    if history.start.get("commands") == {}:  # as such a run records it
        return []
    program = program_command()
    run = shlex.quote(str(folder))
    # without a slash, it could be the name of a recipe
    path = str(folder) if os.sep in str(folder) else f"./{folder}"
    resume = ("resume", f"{program} train {shlex.quote(path)}")
    if history.total_kimg is not None and history.kimg >= history.total_kimg:
        resume = ("train twice as long", f"{resume[1]} train.kimg={2 * history.kimg:g}")
    pairs = to_number(to_mapping(history.start.get("data")).get("held_out_pairs"))
    num = int(pairs) if pairs is not None and 1 <= pairs < 64 else 64  # each image needs a pair of its own
    return [
        resume,
        ("sample", f"{program} sample {run} --num {num}"),
        ("export", f"{program} export {run}"),
        ("score", f"{program} eval {run} --json"),
    ]
