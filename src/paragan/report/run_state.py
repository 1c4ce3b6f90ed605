"""State of a run, from its record and the small files of its folder."""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from paragan.core.errors import PREEMPTED
from paragan.core.files import open_regular_file
from paragan.report.record import History
from paragan.report.record_values import single_line, to_number
from paragan.report.scale import format_number

_SILENT_S = 600.0
_MAX_BYTES = 1 << 20  # limit for small files


@dataclass(frozen=True)
class RunState:
    """State of a run, with the modification time of its record."""

    word: Literal["running", "silent", "finished", "stopped", "failed"]
    reason: str
    written: float


def run_state(folder: Path, history: History) -> RunState:
    """Return the state by the last `end` in the record, else by exit.json, else running."""
    try:
        written = (folder / "metrics.jsonl").stat().st_mtime
    except OSError:
        written = time.time()
    end = history.end or read_small_json(folder / "exit.json")  # the launcher's, if rank 0 was killed
    code = to_number(end.get("code"))
    if code is None or not math.isfinite(code):
        if time.time() - written > _SILENT_S:  # it may have been killed
            return RunState("silent", "no new record for ten minutes", written)
        return RunState("running", "", written)
    words: dict[int, Literal["finished", "stopped"]] = {0: "finished", PREEMPTED: "stopped"}
    return RunState(words.get(int(code), "failed"), single_line(end.get("reason")), written)


def read_small_text(path: Path) -> str:
    """Return the first MiB of a text file; empty for a missing file. Printable: the run may be another's."""
    try:
        with open_regular_file(path) as file:
            text = file.read(_MAX_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError:
        return ""
    return "\n".join(_printable_line(line) for line in text.split("\n"))


def _printable_line(line: str) -> str:
    """Return a line with its indentation, and the rest as `single_line` returns it."""
    return line[: len(line) - len(line.lstrip())].replace("\t", " ") + single_line(line)


def read_small_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a small file; empty without one."""
    try:
        value = json.loads(read_small_text(path))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def format_duration(seconds: float) -> str:
    """Format a duration in at most two units: 42 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    if not math.isfinite(seconds):
        return format_number(seconds)
    whole = int(seconds)
    units = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
    for size, unit, below, small in units:
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"
