"""Report page of a run, rendered from its folder alone."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
import time
from collections.abc import Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import jinja2

from paragan.core.command import program_command
from paragan.report import panels, population
from paragan.report.charts import Chart
from paragan.report.events import list_events
from paragan.report.metric_notes import explanation, reliability
from paragan.report.record import History, RecordEntry, metric_names, open_record, single_line, to_number
from paragan.report.record_values import to_mapping
from paragan.report.run_facts import data_fact, player_facts, ranks_fact
from paragan.report.run_state import format_duration, read_small_json, read_small_text, run_state, total_kimg
from paragan.report.sample_frames import Frame, SampleFrames
from paragan.report.scale import format_number

_HERE = Path(__file__).parent
_MAX_TABLE_ROWS = 40  # of a chart
_SHEET_WIDTH = 660  # pixels, at full page width
_FIRST_CHART_HEIGHT = 330
_SMALL_CHART_HEIGHT = 165
_MAX_ITEMS = 200  # of a list of an untrusted record
_MAX_CONFIG = 200_000  # characters
_DELAYS = {
    "lag": "Lag of the opponent of {}, in steps",
    "age": "Age of the images used by {}, in steps",
    "wait_ms": "Wait of {} for the other player, in milliseconds",
}
_SECTIONS = {
    "game": "Losses",
    "telemetry": "Telemetry",
    "pace": "Performance",
    "other": "Other series",
}


class Page:
    """Report of a run; rendering again only reads new lines and encodes new samples."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = open_record(folder)
        self.frames = SampleFrames(folder)
        self._template = _environment().get_template("report.html.j2")
        self._css, self._js = (_source(name) for name in ("report.css", "report.js"))

    def render(self, live: bool = False) -> str:
        """Return the page as HTML. live: the page polls its server for changes."""
        token = self.token()  # before reading: a change in between makes the next token differ
        self.record.read()
        view = _view(self.folder, self.record.history, self.frames.choose(self.record.history.samples))
        page = {"live": live, "token": token, "css": self._css, "js": self._js, "csp": self.policy(live)}
        return self._template.render(view, **page)

    def policy(self, live: bool) -> str:
        """Return the content security policy: only this style, this script and embedded images."""
        connect = "; connect-src 'self'"
        style, script = (_sha256_source(text) for text in (self._css, self._js))
        return (
            f"default-src 'none'; img-src data:; style-src '{style}'; script-src '{script}'; "
            f"base-uri 'none'; form-action 'none'{connect if live else ''}"
        )

    def token(self) -> str:
        """Return a token that changes whenever the page would."""
        stamps = []
        for name in ("metrics.jsonl", "exit.json", "score.json", "config.yaml"):
            try:
                status = (self.folder / name).stat()
                stamps.append(f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}")
            except OSError:
                stamps.append("")
        return _sha256_source("/".join(stamps))


def _view(folder: Path, history: History, frames: list[Frame]) -> dict[str, Any]:
    total = total_kimg(folder, history)
    kimg = max(history.kimg, 1e-9)
    config = read_small_text(folder / "config.yaml")
    names = metric_names(history.scores)
    sections = [(id, title, panels.section_charts(id, history.series, kimg)) for id, title in _SECTIONS.items()]
    metrics = panels.metric_charts(history.scores, kimg)
    cells = population.population_section(history.population, kimg)
    drawn = [*metrics, *(cells.charts if cells else ()), *chain.from_iterable(charts for _, _, charts in sections)]
    return _header(folder, history) | {
        "numbers": [_key_number(name, history) for name in names],
        "accuracy": reliability(history.protocol),
        "left_out": max(0, history.most_metrics - len(names)),
        "frames": frames,
        "film": [{"step": f.step, "kimg": f.kimg, "src": f.uri} for f in frames],
        "rows": _rows(history.rows),
        "metrics": metrics,
        "num_next": _num_next_to(frames),
        "meanings": [(name, text) for name in names if (text := explanation(name))],
        "delays": _delays(history.delays),
        "sections": [section for section in sections if section[2]],
        "population": cells,
        "shape": population.grid_shape_text(history.population.grid),
        "readouts": {chart.id: chart.readout for chart in drawn},
        "kimg": kimg,
        "advice": [_advice(entry) for entry in reversed(history.advice.values())],
        "events": list_events(history),
        "changed": _changed(history.start.get("changed")),
        "config": config[:_MAX_CONFIG],
        "commands": _commands(folder, history, total) if _has_commands(history) else [],
        "protocol": _flatten(history.protocol or read_small_json(folder / "score.json").get("protocol"))[:_MAX_ITEMS],
    }


def _header(folder: Path, history: History) -> dict[str, Any]:
    state = run_state(folder, history)
    total = total_kimg(folder, history)
    return {
        "name": single_line(folder.resolve().name) or "run",
        "recipe": single_line(history.start.get("recipe")),
        "state": state,
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(state.written)),
        "history": history,
        "total": total,
        "share": min(1.0, history.kimg / total) if total else None,
        "spent": format_duration(history.seconds),
        "players": player_facts(history.start.get("players")),
        "data": data_fact(history.start.get("data")),
        "ranks": ranks_fact(history.start),
    }


def table(chart: Chart) -> list[list[str]]:
    """Return rows of a chart as text, including the first and last; all rows of most metrics."""
    readout: Any = chart.readout
    count = len(readout["x"])
    stride = -(-count // (_MAX_ITEMS if chart.id.startswith("metric") else _MAX_TABLE_ROWS)) or 1
    chosen = sorted({*range(0, count, stride), count - 1}) if count else []
    return [
        [f"{readout['step'][i]:,}", format_number(readout["x"][i]), *(_cell(line[i]) for line in readout["lines"])]
        for i in chosen
    ]


def _cell(value: float | None) -> str:
    return "–" if value is None else format_number(value)


def _key_number(name: str, history: History) -> dict[str, str]:
    with_metric = [entry for entry in history.scores if name in entry.numbers()]
    real = to_number(to_mapping(history.real).get(name))
    last = with_metric[-1]
    best = panels.best_evaluation(name, with_metric)
    main = best or last
    value = format_number(main.numbers()[name])
    last_value = format_number(last.numbers()[name])
    is_tie = value == last_value and last is not main
    return {
        "name": name,
        "explanation": explanation(name),
        "value": value,
        "what": "best" if best else "last",
        "where": f"at {format_number(main.kimg)} kimg" + (" and last" if is_tie else ""),
        "last": last_value if last is not main and not is_tie else "",
        "real": "" if real is None else format_number(real),
    }


def _num_next_to(frames: list[Frame]) -> int:
    """Return the number of small charts next to the samples, for columns of similar height."""
    if not frames:
        return 0
    height = _SHEET_WIDTH * frames[-1].height / frames[-1].width
    rows = round((height - _FIRST_CHART_HEIGHT) / _SMALL_CHART_HEIGHT)
    return 2 * min(max(rows, 0), 3)


def _num_samples(data: object) -> int:
    """Return the number of images to sample: 64, or all held-out pairs if they are fewer."""
    pairs = to_number(data.get("held_out_pairs")) if isinstance(data, Mapping) else None
    return int(pairs) if pairs is not None and 1 <= pairs < 64 else 64


def _delays(histograms: Mapping[tuple[str, str], Mapping[int, int]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the histograms as tables of value and share."""
    tables = []
    for (side, name), bins in histograms.items():
        total = sum(bins.values())
        rows = [(f"≤ {v}" if name == "wait_ms" else f"{v}", f"{bins[v] / total:.1%}") for v in sorted(bins)]
        if total:
            tables.append((_DELAYS[name].format(side.upper()), rows))
    return tables


def _rows(rows: object) -> list[str]:
    return [single_line(row, 60) for row in rows[:_MAX_ITEMS]] if isinstance(rows, list) else []


def _advice(entry: RecordEntry) -> dict[str, str]:
    advice = entry.values
    value = to_number(advice.get("value"))
    return {
        "name": single_line(advice.get("name")),
        "value": "" if value is None else format_number(value),
        "means": single_line(advice.get("means")),
        "try": single_line(advice.get("try")),
        "step": f"{entry.step:,}",
    }


def _changed(settings: object) -> list[tuple[str, str, str]]:
    pairs = islice(settings.items(), _MAX_ITEMS) if isinstance(settings, Mapping) else ()
    return [(single_line(k), _setting(v[0]), _setting(v[1])) for k, v in pairs if isinstance(v, list) and len(v) == 2]


def _setting(value: object) -> str:
    """Format a setting as in a recipe."""
    return single_line(value if isinstance(value, str) else json.dumps(value))


def _has_commands(history: History) -> bool:
    """Whether the command line can open the run: not if its networks are defined in a program."""
    return history.start.get("commands") != {}


def _commands(folder: Path, history: History, total: float | None) -> list[tuple[str, str]]:
    """Return commands to copy, derived only from the folder because the record is untrusted.

    They never include `--trust`: the user decides whether code named by a config may run. For a
    finished run, the command to continue doubles its length.
    """
    run = shlex.quote(str(folder))
    # without a slash, it could be the name of a recipe
    name = str(folder) if os.sep in str(folder) else f"./{folder}"
    resume = f"{program_command()} train {shlex.quote(name)}"
    is_finished = total is not None and history.kimg >= total
    continue_command = (
        ("train twice as long", f"{resume} train.kimg={2 * history.kimg:g}") if is_finished else ("resume", resume)
    )
    return [
        continue_command,
        ("sample", f"{program_command()} sample {run} --num {_num_samples(history.start.get('data'))}"),
        ("export", f"{program_command()} export {run}"),
        ("score", f"{program_command()} eval {run} --json"),
    ]


def _flatten(settings: object, prefix: str = "", depth: int = 4) -> list[tuple[str, str]]:
    """Return nested settings as pairs of dotted name and value."""
    if not isinstance(settings, Mapping) or not depth:
        return [(prefix, single_line(settings))] if prefix else []
    pairs: list[tuple[str, str]] = []
    for name, value in settings.items():
        pairs += _flatten(value, f"{prefix}.{single_line(name)}".strip("."), depth - 1)
    return pairs


def _environment() -> jinja2.Environment:
    """Return a template environment that escapes every value."""
    environment = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FileSystemLoader(_HERE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": format_number, "table": table}
    return environment


def _source(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _sha256_source(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
