"""How a run stands, from its record and the small files beside it."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paragan.core import strict_yaml
from paragan.core.errors import PREEMPTED, ParaganError
from paragan.core.files import open_regular_file
from paragan.core.settings_tree import SourceLocation
from paragan.report.record import History, single_line, to_number
from paragan.report.scale import format_number

_SILENT_S = 600.0
_MOST = 1 << 20  # bytes of a small file that are read


@dataclass(frozen=True)
class RunState:
    """word: running, silent, finished, stopped or failed. written: seconds since the epoch, of the record."""

    word: str
    reason: str
    written: float


def run_state(folder: Path, history: History) -> RunState:
    """An `end` in the record counts first, then exit.json; without either the run goes on, or was killed silently."""
    try:
        written = (folder / "metrics.jsonl").stat().st_mtime
    except OSError:
        written = time.time()
    end = history.end or read_small_json(folder / "exit.json")
    code = to_number(end.get("code"))
    if code is None or not math.isfinite(code):
        quiet = time.time() - written > _SILENT_S
        return RunState("silent" if quiet else "running", "nothing new for ten minutes" if quiet else "", written)
    word = {0: "finished", PREEMPTED: "stopped"}.get(int(code), "failed")
    return RunState(word, single_line(end.get("reason")), written)


def total_kimg(folder: Path, history: History) -> float | None:
    """How long the run is to be; None where nothing tells."""
    told, path = to_number(history.start.get("total_kimg")), folder / "config.yaml"
    if told is None:
        try:
            tree = strict_yaml.read_map(_read_start(path), SourceLocation(str(path), 1), [])
            told = to_number(tree.plain()["train"]["kimg"])
        except (ParaganError, LookupError, TypeError, RecursionError):
            return None
    return told if told is not None and told > 0 and math.isfinite(told) else None


def read_small_text(path: Path) -> str:
    """The beginning of a text file, line by line fit to be shown; empty where there is none."""
    return "\n".join(_printable_line(line) for line in _read_start(path).split("\n"))


def read_small_json(path: Path) -> dict[str, Any]:
    """A JSON object from a small file; empty where there is none."""
    try:
        value = json.loads(read_small_text(path))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def format_duration(seconds: float) -> str:
    """Two units at most: 42 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    if not math.isfinite(seconds):
        return format_number(seconds)
    whole = int(seconds)
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def _read_start(path: Path) -> str:
    try:
        with open_regular_file(path) as file:
            return file.read(_MOST).decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError:
        return ""


def _printable_line(line: str) -> str:
    return line[: len(line) - len(line.lstrip())].replace("\t", " ") + single_line(line)
