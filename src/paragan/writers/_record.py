"""The record of a run, read as it grows. A line may be missing, cut short, of an unknown kind or not ours at all."""

from __future__ import annotations

import json
import math
import os
import unicodedata
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from paragan.core.errors import CheckpointError
from paragan.writers._series import Series

_LINE, _SERIES, _EVENTS = 1 << 20, 200, 200  # bounds on what a foreign record can cost
_PLACE = ("kind", "step", "kimg", "seconds")


@dataclass(frozen=True)
class Moment:
    """One line of the record and where it stands."""

    step: int
    kimg: float
    values: Mapping[str, Any]

    def numbers(self) -> dict[str, float]:
        """The values that are numbers, by name."""
        return self._numbers

    @cached_property
    def _numbers(self) -> dict[str, float]:
        found = ((plain(name), number(value)) for name, value in self.values.items() if name not in _PLACE)
        return {name: value for name, value in found if value is not None}


@dataclass
class History:
    """What the lines said. A reader keeps all evaluations and pictures, and bounded series of everything else."""

    step: int = 0
    kimg: float = 0.0
    seconds: float = 0.0
    start: Mapping[str, Any] = field(default_factory=dict)
    end: Mapping[str, Any] | None = None
    series: dict[str, Series] = field(default_factory=dict)
    scores: list[Moment] = field(default_factory=list)
    samples: list[Moment] = field(default_factory=list)
    advice: dict[str, Moment] = field(default_factory=dict)
    events: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_EVENTS))
    checkpoints: int = 0
    checkpoint: str = ""
    _session: float = 0.0  # seconds, when the last line was written

    def take(self, kind: object, moment: Moment) -> None:
        """The next line."""
        self.step, self.kimg = moment.step, moment.kimg
        self._count_seconds(seconds if (seconds := number(moment.values.get("seconds"))) is not None and math.isfinite(seconds) else self._session)
        self.end = moment.values if kind == "end" else None
        match kind:
            case "step" | "telemetry":
                self._grow(moment)
            case "score":
                self.scores.append(moment)
            case "samples":
                self.samples.append(moment)
            case "advice":
                self.advice[plain(moment.values.get("name"))] = moment
            case "checkpoint":
                self.checkpoints, self.checkpoint = self.checkpoints + 1, plain(moment.values.get("path"))
            case "event":
                self.events.append((moment.step, plain(moment.values.get("text"))))
            case "start":
                self.start = moment.values
                self.events.append((moment.step, "resumed" if moment.values.get("resumed") else "started"))

    def _grow(self, moment: Moment) -> None:
        for name, value in moment.numbers().items():
            line = self.series.get(name)
            if line is None:
                if len(self.series) >= _SERIES:
                    continue
                line = self.series[name] = Series()
            if not line.bad and not math.isfinite(value):
                self.events.append((moment.step, f"{name} is no longer a number"))
            line.add(moment.step, moment.kimg, value)

    def _count_seconds(self, session: float) -> None:
        """Each session counts from its own beginning."""
        self.seconds += session - self._session if session >= self._session else session
        self._session = session


class Record:
    """`read` takes in what is new; `history` is what is known so far."""

    def __init__(self, path: Path) -> None:
        self.path, self.history = path, History()
        self._offset, self._file = 0, (0, 0)

    def read(self) -> bool:
        """Whether there was anything new. A record that was cut back (a resumed run) is read again from the start."""
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self._file or status.st_size < self._offset:
                    self._file, self._offset, self.history = (status.st_dev, status.st_ino), 0, History()
                return self._take_lines(file)
        except FileNotFoundError:
            return False

    def _take_lines(self, file: Any) -> bool:
        before = self._offset
        file.seek(before)
        while (line := file.readline(_LINE)) and (line.endswith(b"\n") or len(line) == _LINE):
            self._offset += len(line)
            if (parsed := _parse(line)) is not None:
                self.history.take(*parsed)
        return self._offset != before


def open_record(folder: Path) -> Record:
    """The record of a run folder, not read yet. Raises `CheckpointError` where `folder` is none."""
    if not any((folder / name).is_file() for name in ("metrics.jsonl", "config.yaml")):
        found = "a file" if folder.is_file() else "a folder without metrics.jsonl" if folder.is_dir() else "nothing"
        raise CheckpointError(f"{folder}: found {found}, expected a run folder as `paragan train` makes it; name one")
    return Record(folder / "metrics.jsonl")


def number(value: object) -> float | None:
    """As a float, also one that is not finite; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def plain(text: object, most: int = 500) -> str:
    """One line a page and a terminal can show: no control, format or broken characters, at most `most` of them."""
    line = str("" if text is None else text)[: 2 * most]
    if line.isprintable():  # nearly always, and much faster
        return line[:most]
    line = " ".join(line.split())
    return "".join(c for c in line if unicodedata.category(c) not in ("Cc", "Cf", "Cs"))[:most]


def _parse(line: bytes) -> tuple[object, Moment] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    step, kimg = number(values.get("step")), number(values.get("kimg"))
    if step is None or kimg is None or not (math.isfinite(step) and math.isfinite(kimg)):
        return None
    return values.get("kind"), Moment(int(step), kimg, values)
