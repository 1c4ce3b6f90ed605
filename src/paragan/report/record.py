"""Incremental reader of metrics.jsonl; lines may be missing, truncated, unknown or untrusted."""

from __future__ import annotations

import json
import math
import os
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from paragan.core.command import program_command
from paragan.core.errors import CheckpointError
from paragan.core.files import open_regular_file
from paragan.core.phases import Phase
from paragan.report.grid_record import GridHistory
from paragan.report.record_entry import NUM_IMAGES, RecordEntry, thin_out
from paragan.report.record_values import (
    dotted_settings,
    finite_or_nan,
    first_items,
    first_pairs,
    single_line,
    to_mapping,
    to_natural,
)
from paragan.report.series import Series

# Limits on the cost of an untrusted record.
_MAX_LINE_BYTES = 1 << 22  # a generation of 4096 cells has 2 MB
_MAX_SERIES = 200
_MAX_EVENTS = 200
_MAX_ADVICE = 50
_MAX_CHECKPOINTS = 10
_MAX_BINS = 64
_MAX_SECONDS = 1e15
_MAX_SAVES = 1000  # of checkpoints whose time is known
_MAX_STAMPS = 50  # evaluations by further protocols are left out
_HISTOGRAMS = ("lag", "age", "wait_ms")


@dataclass
class History:
    """Content of a record in bounded memory: long records are thinned out.

    most_metrics: largest number of metrics in one evaluation. protocol, real (metrics of real
    images): of the latest evaluation. stamps: distinct protocols of the evaluations with their
    number of images, as text by dotted name. rows: row labels of the latest samples.
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
    stamps: list[dict[str, str]] = field(default_factory=list)
    real: object = None
    rows: object = None
    advice: dict[str, RecordEntry] = field(default_factory=dict)
    events: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_MAX_EVENTS))
    delays: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    phases: dict[str, Counter[int]] = field(default_factory=dict)  # seconds of each rank
    population: GridHistory = field(default_factory=GridHistory)
    checkpoints: int = 0
    saves: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_MAX_CHECKPOINTS))
    _saved_s: dict[int, float] = field(default_factory=dict)  # seconds of the newest checkpoints by step
    _session_s: float = 0.0  # time of the last line within its session

    @property
    def total_kimg(self) -> float | None:
        """Planned length of the run; None if it is unknown."""
        kimg = finite_or_nan(self.start.get("total_kimg"))
        return kimg if kimg > 0 else None

    def add(self, kind: object, entry: RecordEntry) -> None:
        """Add the next line."""
        if kind != "score" or entry.step > self.step:  # scores in the background are late
            self.step = entry.step
            self.kimg = entry.kimg
        self._count_seconds(finite_or_nan(entry.values.get("seconds")))
        entry = replace(entry, seconds=self.seconds)
        self.end = entry.values if kind == "end" else None
        match kind:
            case "step" | "telemetry" | "loading" | "traffic" | "phases":
                self._add_curves(kind, entry)
            case "delays":
                self._add_delays(entry.values)
            case "generation":
                self.population.add(entry.step, entry.kimg, entry.values, entry.seconds)
            case "score":
                self._add_score(entry)
            case "samples":
                self.rows = entry.values.get("rows")
                self.samples = thin_out(self.samples, entry.brief())
            case "end":
                self.events.append((entry.step, single_line(entry.values.get("reason")) or "ended"))
            case "advice":
                name = single_line(entry.values.get("name"))
                self.events.append((entry.step, f"advice: {name}"))
                self.advice[name] = entry.brief()
                if len(self.advice) > _MAX_ADVICE:
                    del self.advice[next(iter(self.advice))]
            case "checkpoint":
                self.checkpoints += 1
                self._saved_s[entry.step] = entry.seconds
                if len(self._saved_s) > _MAX_SAVES:
                    del self._saved_s[next(iter(self._saved_s))]
                self.saves.append((entry.step, single_line(entry.values.get("path"))))
            case "event":
                self._add_event(entry)
            case "start":
                self.start = entry.values
                self.population = self.population.after_start(entry.values.get("grid"))
                self.events.append((entry.step, "resumed" if entry.values.get("resumed") else "started"))

    def _add_event(self, entry: RecordEntry) -> None:
        self.events.append((entry.step, single_line(entry.values.get("text"))))
        if "total_kimg" in entry.values:  # a rollback makes a run longer
            self.start = {**self.start, "total_kimg": entry.values["total_kimg"]}

    def _add_delays(self, values: Mapping[str, Any]) -> None:
        """Add histograms {side: {name: {value: count}}}; other values are ignored."""
        for side, name in product(("g", "d"), _HISTOGRAMS):
            bins = self.delays.setdefault((side, name), Counter())
            for key, number in first_pairs(to_mapping(values.get(side)).get(name), _MAX_BINS):
                value = to_natural(key)
                count = to_natural(number)
                if value is not None and count is not None and (value in bins or len(bins) < _MAX_BINS):
                    bins[value] += count

    def _add_phases(self, values: Mapping[str, Any]) -> None:
        """Add {phase: seconds of each of `ranks`}; other values are ignored."""
        ranks = [to_natural(rank) for rank in first_items(values.get("ranks"), _MAX_BINS)]
        by_phase = to_mapping(values.get("phase_s"))
        for name in Phase:
            for rank, seconds in zip(ranks, first_items(by_phase.get(name), _MAX_BINS), strict=False):
                spent = finite_or_nan(seconds)
                if rank is not None and 0 <= spent < _MAX_SECONDS:
                    self.phases.setdefault(name, Counter())[rank] += spent  # type: ignore[assignment]

    def _add_score(self, entry: RecordEntry) -> None:
        self.num_scores += 1
        if entry.values.get("evaluation_mode") == "background":  # of the weights, not of their score
            entry = replace(entry, seconds=self._saved_s.get(entry.step, entry.seconds))
        self.protocol = entry.values.get("protocol")
        self.real = entry.values.get("real")
        self.most_metrics = max(self.most_metrics, len(entry.numbers.keys() - {NUM_IMAGES}))
        stamp = dict(dotted_settings(self.protocol))
        stamp[NUM_IMAGES] = single_line(entry.values.get(NUM_IMAGES))
        if stamp not in self.stamps and len(self.stamps) < _MAX_STAMPS:
            self.stamps.append(stamp)
        if stamp in self.stamps:
            self.scores = thin_out(self.scores, replace(entry.brief(), stamp=self.stamps.index(stamp)))

    def _add_curves(self, kind: object, entry: RecordEntry) -> None:
        """Add the numbers of a line; those of some kinds have a prefix."""
        prefix = "" if kind in ("step", "telemetry") else f"{kind}/"
        if kind == "traffic":
            prefix = "links/"
            entry = replace(entry, values=to_mapping(entry.values.get("links")))
        elif kind == "phases":
            self._add_phases(entry.values)
            entry = replace(entry, values=to_mapping(entry.values.get("per_step")))
        for number, value in entry.numbers.items():
            name = f"{prefix}{number}"
            if name not in self.series and len(self.series) >= _MAX_SERIES:
                continue
            line = self.series.setdefault(name, Series())
            if not line.bad and not math.isfinite(value):
                self.events.append((entry.step, f"{name} is not finite"))
            line.add(entry.step, entry.kimg, value, entry.seconds)

    def _count_seconds(self, session_s: float) -> None:
        """Add up training time; each session counts from zero."""
        if math.isfinite(session_s):
            new_s = session_s - (self._session_s if session_s >= self._session_s else 0.0)
            self.seconds = min(max(0.0, self.seconds + new_s), _MAX_SECONDS)
            self._session_s = session_s


class Record:
    """Reader of a growing record: `read` adds new lines to `history`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.history = History()
        self._offset = 0
        self._inode = (0, 0)

    def read(self) -> bool:
        """Read new lines; returns whether any were read.

        A record truncated on resume is read again. Raises `CheckpointError` if it is unreadable.
        """
        try:
            with open_regular_file(self.path) as file:
                status = os.fstat(file.fileno())
                inode = (status.st_dev, status.st_ino)
                if inode != self._inode or status.st_size < self._offset:
                    self._inode = inode
                    self._offset = 0
                    self.history = History()
                return self._read_lines(file)
        except FileNotFoundError:
            return False
        except OSError as error:
            problem = f"the record cannot be read ({error.strerror})"
            raise CheckpointError(f"{self.path}: {problem}; check the file") from None

    def _read_lines(self, file: Any) -> bool:
        start = self._offset
        file.seek(start)
        while line := file.readline(_MAX_LINE_BYTES):
            if not line.endswith(b"\n") and len(line) < _MAX_LINE_BYTES:
                break  # the rest is not written yet
            self._offset += len(line)
            if (parsed := _parse(line)) is not None:
                self.history.add(*parsed)
        return self._offset > start


def open_record(folder: Path) -> Record:
    """Open the record of a run folder; raises `CheckpointError` for any other folder."""
    if not any((folder / name).exists() for name in ("metrics.jsonl", "config.yaml")):
        absence = "a folder without metrics.jsonl" if folder.is_dir() else "missing"
        problem = "a file" if folder.is_file() else absence
        cure = f"pass one that `{program_command()} train` has created"
        raise CheckpointError(f"{folder}: not a run folder ({problem}); {cure}")
    return Record(folder / "metrics.jsonl")


def _parse(line: bytes) -> tuple[object, RecordEntry] | None:
    try:
        values = to_mapping(json.loads(line))
    except (ValueError, RecursionError):
        return None
    step = finite_or_nan(values.get("step"))
    kimg = finite_or_nan(values.get("kimg"))
    if math.isnan(step) or math.isnan(kimg):
        return None
    return values.get("kind"), RecordEntry(int(step), kimg, values)
