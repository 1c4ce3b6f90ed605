"""The record of a run, read as it grows. A line may be missing, cut short, of an unknown kind or not ours at all."""

from __future__ import annotations

import json
import math
import os
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from paragan.core.command import program_command
from paragan.core.errors import CheckpointError
from paragan.core.files import open_regular_file
from paragan.report.grid_record import Population
from paragan.report.record_values import single_line, to_number
from paragan.report.series import Series

# Bounds on what a foreign record can cost: bytes of a line (a generation of 4096 cells has 2 MB), so many of each kind,
# and values that are kept of a line.
_LINE, _SERIES, _EVENTS, _ADVICE, _MOMENTS, _VALUES, _SAVES = 1 << 22, 200, 200, 50, 1000, 64, 10
_METRICS = 24
_HISTOGRAMS, _BINS = ("lag", "age", "wait_ms"), 64
_PLACE = ("kind", "step", "kimg", "seconds", "eta_s")
_COUNT = "num_images"  # a number of an evaluation that is no metric


@dataclass(frozen=True)
class RecordEntry:
    """One line of the record and where it stands."""

    step: int
    kimg: float
    values: Mapping[str, Any]

    def numbers(self) -> dict[str, float]:
        """The values that are numbers, by name."""
        return self._numbers

    @cached_property
    def _numbers(self) -> dict[str, float]:
        found = ((single_line(name), to_number(value)) for name, value in self.values.items() if name not in _PLACE)
        return {name: value for name, value in found if value is not None}

    def brief(self) -> RecordEntry:
        """With its first numbers, nulls and texts, cut short: what can be kept of many lines."""
        told = ((single_line(name), value) for name, value in self.values.items() if not isinstance(value, list | dict))
        kept = {name: single_line(value) if isinstance(value, str) else value for name, value in islice(told, _VALUES)}
        return RecordEntry(self.step, self.kimg, kept)


@dataclass
class History:
    """What the lines said, in bounded memory. Of a long record not every evaluation and picture is kept.

    most_metrics: how many numbers one evaluation told. protocol, real (values of real images): of the newest
    evaluation. rows: of the newest pictures.
    """

    step: int = 0
    kimg: float = 0.0
    seconds: float = 0.0
    start: Mapping[str, Any] = field(default_factory=dict)
    end: Mapping[str, Any] | None = None
    series: dict[str, Series] = field(default_factory=dict)
    scores: list[RecordEntry] = field(default_factory=list)
    samples: list[RecordEntry] = field(default_factory=list)
    num_scores: int = 0
    most_metrics: int = 0
    protocol: object = None
    real: object = None
    rows: object = None
    advice: dict[str, RecordEntry] = field(default_factory=dict)
    events: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_EVENTS))
    delays: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    population: Population = field(default_factory=Population)
    checkpoints: int = 0
    checkpoint: str = ""
    saves: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_SAVES))
    _session: float = 0.0  # seconds, when the last line was written

    def take(self, kind: object, moment: RecordEntry) -> None:
        """The next line."""
        self.step, self.kimg = moment.step, moment.kimg
        self._count_seconds(to_number(moment.values.get("seconds")))
        self.end = moment.values if kind == "end" else None
        match kind:
            case "step" | "telemetry":
                self._grow(moment)
            case "delays":
                self._delay(moment.values)
            case "generation":
                self.population.take(moment.step, moment.kimg, moment.values)
            case "score":
                self._score(moment)
            case "samples":
                self.rows = moment.values.get("rows")
                self.samples = thin_out(self.samples, moment.brief())
            case "end":
                self.events.append((moment.step, single_line(moment.values.get("reason")) or "ended"))
            case "advice":
                self.events.append((moment.step, f"advice: {single_line(moment.values.get('name'))}"))
                self.advice[single_line(moment.values.get("name"))] = moment.brief()
                if len(self.advice) > _ADVICE:
                    del self.advice[next(iter(self.advice))]
            case "checkpoint":
                self.checkpoints, self.checkpoint = self.checkpoints + 1, single_line(moment.values.get("path"))
                self.saves.append((moment.step, self.checkpoint))
            case "event":
                self.events.append((moment.step, single_line(moment.values.get("text"))))
            case "start":
                self.start = moment.values
                self.population = self.population.after_start(moment.values.get("grid"))
                self.events.append((moment.step, "resumed" if moment.values.get("resumed") else "started"))

    def _delay(self, values: Mapping[str, Any]) -> None:
        """Add up histograms {side: {name: {value: count}}}; whatever else there is, is left."""
        for side in ("g", "d"):
            told = values.get(side)
            if isinstance(told, Mapping):
                for name in _HISTOGRAMS:
                    self._add_up((side, name), told.get(name))

    def _add_up(self, which: tuple[str, str], found: object) -> None:
        bins = self.delays.setdefault(which, Counter())
        for value, count in islice(found.items(), _BINS) if isinstance(found, Mapping) else ():
            if _is_bin(value, count) and (int(value) in bins or len(bins) < _BINS):
                bins[int(value)] += count

    def _score(self, moment: RecordEntry) -> None:
        self.num_scores, self.protocol = self.num_scores + 1, moment.values.get("protocol")
        self.real = moment.values.get("real")
        self.most_metrics = max(self.most_metrics, len(moment.numbers().keys() - {_COUNT}))
        self.scores = thin_out(self.scores, moment.brief())

    def _grow(self, moment: RecordEntry) -> None:
        for name, value in moment.numbers().items():
            line = self.series.get(name)
            if line is None:
                if len(self.series) >= _SERIES:
                    continue
                line = self.series[name] = Series()
            if not line.bad and not math.isfinite(value):
                self.events.append((moment.step, f"{name} is no longer a number"))
            line.add(moment.step, moment.kimg, value)

    def _count_seconds(self, session: float | None) -> None:
        """Each session counts from its own beginning."""
        if session is None or not math.isfinite(session):
            return
        self.seconds += session - self._session if session >= self._session else session
        self._session = session


class Record:
    """`read` takes in what is new; `history` is what is known so far."""

    def __init__(self, path: Path) -> None:
        self.path, self.history = path, History()
        self._offset, self._file = 0, (0, 0)

    def read(self) -> bool:
        """Whether there was anything new. A record that was cut back (a resumed run) is read again from the start.

        Raises `CheckpointError` where it cannot be read.
        """
        try:
            with open_regular_file(self.path) as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self._file or status.st_size < self._offset:
                    self._file, self._offset, self.history = (status.st_dev, status.st_ino), 0, History()
                return self._take_lines(file)
        except FileNotFoundError:
            return False
        except OSError as error:
            found = f"a record that cannot be read ({error.strerror})"
            raise CheckpointError(f"{self.path}: found {found}, expected a plain file; check it") from None

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
    if not any((folder / name).exists() for name in ("metrics.jsonl", "config.yaml")):
        found = "a file" if folder.is_file() else "a folder without metrics.jsonl" if folder.is_dir() else "nothing"
        raise CheckpointError(
            f"{folder}: found {found}, expected a run folder as `{program_command()} train` makes it; name one"
        )
    return Record(folder / "metrics.jsonl")


def metric_names(scores: Iterable[RecordEntry]) -> list[str]:
    """The metrics that most evaluations tell, at most 24, in the order of the record."""
    told = Counter(name for moment in scores for name in moment.numbers() if name != _COUNT)
    most = {name for name, _ in told.most_common(_METRICS)}
    return [name for name in told if name in most]


def thin_out(moments: list[RecordEntry], new: RecordEntry) -> list[RecordEntry]:
    """With one more. Where these are too many, half of them: first, last, and the extremes of every metric stay."""
    moments.append(new)
    if len(moments) <= _MOMENTS:
        return moments
    kept = {id(moment) for moment in [*moments[::2], moments[-1]]}
    for name in metric_names(moments):
        finite = [(v, i) for i, m in enumerate(moments) if math.isfinite(v := m.numbers().get(name, math.nan))]
        kept |= {id(moments[i]) for _, i in (min(finite), max(finite))} if finite else set()
    return [moment for moment in moments if id(moment) in kept]


def _is_bin(value: object, count: object) -> bool:
    text = str(value)
    return text.isascii() and text.isdecimal() and len(text) < 9 and type(count) is int and 0 <= count < 1 << 48


def _parse(line: bytes) -> tuple[object, RecordEntry] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    step, kimg = to_number(values.get("step")), to_number(values.get("kimg"))
    if step is None or kimg is None or not (math.isfinite(step) and math.isfinite(kimg)):
        return None
    return values.get("kind"), RecordEntry(int(step), kimg, values)
