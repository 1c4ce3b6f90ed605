"""What stands on the page of a run, gathered from its folder alone."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
import time
from collections.abc import Mapping
from itertools import islice
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
from paragan.report.run_state import format_duration, read_small_json, read_small_text, run_state, total_kimg
from paragan.report.sample_frames import Frame, SampleFrames
from paragan.report.scale import format_number

_HERE = Path(__file__).parent
_ROWS = 40  # of the table of a chart
_SHEET_WIDTH, _FIRST_CHART_HEIGHT, _SMALL_CHART_HEIGHT = 660, 330, 165  # pixels, on a page of full width
_MOST, _CONFIG = 200, 200_000  # what a foreign record gets on the page: entries of a list, characters of its settings
_DELAYS = {
    "lag": "Steps that {}'s opponent was behind",
    "age": "Steps that the images shown to {} were old",
    "wait_ms": "Milliseconds that {} waited for the other",
}
_SECTIONS = {
    "game": "The game",
    "telemetry": "Telemetry",
    "pace": "Pace",
    "other": "Further numbers",
}


class Page:
    """`render` again costs what the run has added since: the record is read on, pictures stay encoded."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.record, self.frames = folder, open_record(folder), SampleFrames(folder)
        self._template = _environment().get_template("report.html.j2")
        self._css, self._js = (_source(name) for name in ("report.css", "report.js"))

    def render(self, live: bool = False) -> str:
        """The whole page. live: it asks its server for changes."""
        seen = self.token()  # before reading: what comes in between makes the next page differ
        self.record.read()
        view = _view(self.folder, self.record.history, self.frames.choose(self.record.history.samples))
        more = {"live": live, "token": seen, "css": self._css, "js": self._js, "csp": self.policy(live)}
        return self._template.render(view, **more)

    def policy(self, live: bool) -> str:
        """The content security policy: nothing but this style, this script and embedded pictures."""
        connect = "; connect-src 'self'"
        style, script = (_sha256_source(text) for text in (self._css, self._js))
        return (
            f"default-src 'none'; img-src data:; style-src '{style}'; script-src '{script}'; "
            f"base-uri 'none'; form-action 'none'{connect if live else ''}"
        )

    def token(self) -> str:
        """Changes whenever the page would."""
        found = []
        for name in ("metrics.jsonl", "exit.json", "score.json", "config.yaml"):
            try:
                status = (self.folder / name).stat()
                found.append(f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}")
            except OSError:
                found.append("")
        return _sha256_source("/".join(found))


def _view(folder: Path, history: History, frames: list[Frame]) -> dict[str, Any]:
    now, total = run_state(folder, history), total_kimg(folder, history)
    kimg, config, names = max(history.kimg, 1e-9), read_small_text(folder / "config.yaml"), metric_names(history.scores)
    sections = [(id, title, panels.section_charts(id, history.series, kimg)) for id, title in _SECTIONS.items()]
    metrics, cells = panels.metric_charts(history.scores, kimg), population.population_section(history.population, kimg)
    drawn = [*metrics, *(cells.charts if cells else ()), *(c for _, _, charts in sections for c in charts)]
    return {
        "name": single_line(folder.resolve().name) or "run",
        "recipe": single_line(history.start.get("recipe")),
        "state": now,
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now.written)),
        "history": history,
        "total": total,
        "share": min(1.0, history.kimg / total) if total else None,
        "spent": format_duration(history.seconds),
        "players": _player_facts(history.start.get("players")),
        "data": _data_fact(history.start.get("data")),
        "ranks": _ranks_fact(history.start),
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
        "config": config[:_CONFIG],
        "commands": _commands(folder, history, total) if _has_commands(history) else [],
        "protocol": _flatten(history.protocol or read_small_json(folder / "score.json").get("protocol"))[:_MOST],
    }


def table(chart: Chart) -> list[list[str]]:
    """Some rows of a chart as text, the first and the last among them; more of a metric, mostly all."""
    readout: Any = chart.readout
    count = len(readout["x"])
    stride = -(-count // (_MOST if chart.id.startswith("metric") else _ROWS)) or 1
    chosen = sorted({*range(0, count, stride), count - 1}) if count else []
    return [
        [f"{readout['step'][i]:,}", format_number(readout["x"][i]), *(_cell(line[i]) for line in readout["lines"])]
        for i in chosen
    ]


def _cell(value: float | None) -> str:
    return "–" if value is None else format_number(value)


def _key_number(name: str, history: History) -> dict[str, str]:
    told = [entry for entry in history.scores if name in entry.numbers()]
    real = to_number(to_mapping(history.real).get(name))
    last, best = told[-1], panels.best_evaluation(name, told)
    shown = best or last
    value, last_value = format_number(shown.numbers()[name]), format_number(last.numbers()[name])
    ties = value == last_value and last is not shown
    return {
        "name": name,
        "explanation": explanation(name),
        "value": value,
        "what": "best" if best else "last",
        "where": f"at {format_number(shown.kimg)} kimg" + (", and the last" if ties else ""),
        "last": last_value if last is not shown and not ties else "",
        "real": "" if real is None else format_number(real),
    }


def _num_next_to(frames: list[Frame]) -> int:
    """How many of the small charts stand next to the samples, so that both columns are about as high."""
    if not frames:
        return 0
    height = _SHEET_WIDTH * frames[-1].height / frames[-1].width
    rows = round((height - _FIRST_CHART_HEIGHT) / _SMALL_CHART_HEIGHT)
    return 2 * min(max(rows, 0), 3)


def _player_facts(told: object) -> list[str]:
    if not isinstance(told, Mapping):
        return []
    some = islice(told.items(), _MOST)
    return [_player_fact(single_line(name).upper(), player) for name, player in some if isinstance(player, Mapping)]


def _player_fact(name: str, told: Mapping[str, Any]) -> str:
    weights = to_number(told.get("weights"))
    count = f" {weights:,.0f} weights" if weights is not None else ""
    return f"{name}{count}, {single_line(told.get('precision'))} on {single_line(told.get('device'))}"


def _data_fact(told: object) -> str:
    if not isinstance(told, Mapping):
        return ""
    shape, images = told.get("shape"), to_number(told.get("images"))
    size = " × ".join(single_line(n) for n in shape[:3]) if isinstance(shape, list) else ""
    return ", ".join(
        part
        for part in (single_line(told.get("name")), f"{images:,.0f} images" if images is not None else "", size)
        if part
    )


def _ranks_fact(start: Mapping[str, Any]) -> str:
    """How many there were and where each network lay; nothing of one alone."""
    size, hosts, players = to_number(start.get("ranks")), to_number(start.get("hosts")), start.get("players")
    if size is None or not size > 1:
        return ""
    some = islice(players.items(), _MOST) if isinstance(players, Mapping) else ()
    placed = (f"{single_line(k).upper()} {single_line(p.get('strategy'))}" for k, p in some if isinstance(p, Mapping))
    on = f" on {hosts:,.0f} host{'s' if hosts > 1 else ''}" if hosts is not None else ""
    return f"{size:,.0f} ranks{on}: {', '.join(placed)}"


def _num_samples(told: object) -> int:
    """Images to ask for: 64, or as many as there are held-out pairs to make them from."""
    pairs = to_number(told.get("held_out_pairs")) if isinstance(told, Mapping) else None
    return int(pairs) if pairs is not None and 1 <= pairs < 64 else 64


def _delays(held: Mapping[tuple[str, str], Mapping[int, int]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Histograms as tables: value and share."""
    tables = []
    for (side, name), bins in held.items():
        total = sum(bins.values())
        rows = [(f"≤ {v}" if name == "wait_ms" else f"{v}", f"{bins[v] / total:.1%}") for v in sorted(bins)]
        if total:
            tables.append((_DELAYS[name].format(side.upper()), rows))
    return tables


def _rows(rows: object) -> list[str]:
    return [single_line(row, 60) for row in rows[:_MOST]] if isinstance(rows, list) else []


def _advice(entry: RecordEntry) -> dict[str, str]:
    told, value = entry.values, to_number(entry.values.get("value"))
    return {
        "name": single_line(told.get("name")),
        "value": "" if value is None else format_number(value),
        "means": single_line(told.get("means")),
        "try": single_line(told.get("try")),
        "step": f"{entry.step:,}",
    }


def _changed(told: object) -> list[tuple[str, str, str]]:
    pairs = islice(told.items(), _MOST) if isinstance(told, Mapping) else ()
    return [(single_line(k), _setting(v[0]), _setting(v[1])) for k, v in pairs if isinstance(v, list) and len(v) == 2]


def _setting(value: object) -> str:
    """As one would write it in a recipe."""
    return single_line(value if isinstance(value, str) else json.dumps(value))


def _has_commands(history: History) -> bool:
    """Whether the command line can open the run: not one whose networks are in a program."""
    return history.start.get("commands") != {}


def _commands(folder: Path, history: History, total: float | None) -> list[tuple[str, str]]:
    """From the folder alone: they are offered to be copied, and a record from elsewhere could say anything.

    `--trust` is never among them: whether the code that a config names may run is decided by the person who copies.
    A finished run continues only with more images than it has: twice as many.
    """
    run = shlex.quote(str(folder))
    name = str(folder) if os.sep in str(folder) else f"./{folder}"  # without a slash it could be the name of a recipe
    resume = f"{program_command()} train {shlex.quote(name)}"
    is_over = total is not None and history.kimg >= total
    again = ("train twice as long", f"{resume} train.kimg={2 * history.kimg:g}") if is_over else ("resume", resume)
    return [
        again,
        ("sample", f"{program_command()} sample {run} --num {_num_samples(history.start.get('data'))}"),
        ("export", f"{program_command()} export {run}"),
        ("score", f"{program_command()} eval {run} --json"),
    ]


def _flatten(told: object, before: str = "", depth: int = 4) -> list[tuple[str, str]]:
    """Nested settings as dotted names."""
    if not isinstance(told, Mapping) or not depth:
        return [(before, single_line(told))] if before else []
    found = ((f"{before}.{single_line(name)}".strip("."), value) for name, value in told.items())
    return [pair for name, value in found for pair in _flatten(value, name, depth - 1)]


def _environment() -> jinja2.Environment:
    """Every value is escaped, wherever it stands."""
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
