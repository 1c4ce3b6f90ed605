"""Incremental reader of metrics.jsonl; lines may be missing, truncated, unknown or untrusted."""

import json
import math
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from paragan.core.command import program_command
from paragan.core.errors import CheckpointError
from paragan.core.files import open_regular_file
from paragan.core.phases import Phase
from paragan.report.grid_record import GridHistory
from paragan.report.record_values import (
    NUM_IMAGES,
    RecordEntry,
    dotted_settings,
    finite_or_nan,
    first_items,
    keep_latest,
    single_line,
    thin_out,
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
_MAX_SECONDS = 1e15
_MAX_SAVES = 1000  # whose time is known
_MAX_RANKS = 64
_MAX_PROTOCOLS = 50  # evaluations by further protocols are left out


@dataclass
class PhaseTimes:
    """Seconds of each rank by phase."""

    seconds: dict[str, dict[int, float]] = field(default_factory=dict)

    def add(self, values: Mapping[str, Any]) -> None:
        """Add {phase: seconds of each of `ranks`}; other values are ignored."""
        ranks = [to_natural(rank) for rank in first_items(values.get("ranks"), _MAX_RANKS)]
        by_phase = to_mapping(values.get("phase_s"))
        for name in Phase:
            for rank, number in zip(ranks, first_items(by_phase.get(name), _MAX_RANKS), strict=False):
                spent = finite_or_nan(number)
                if rank is not None and 0 <= spent < _MAX_SECONDS:
                    by_rank = self.seconds.setdefault(name, {})
                    by_rank[rank] = by_rank.get(rank, 0.0) + spent

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return phase, share of the time of all ranks, and, if there are several, the slowest rank and its share."""
        ranks: dict[int, float] = {}
        for by_rank in self.seconds.values():
            for rank, spent in by_rank.items():
                ranks[rank] = ranks.get(rank, 0.0) + spent
        rows = []
        for name, by_rank in self.seconds.items():
            if total := sum(by_rank.values()):
                shares = {rank: spent / ranks[rank] for rank, spent in by_rank.items() if ranks[rank]}
                rank = max(shares, key=shares.__getitem__)
                slowest = (str(rank), f"{shares[rank]:.1%}") if len(ranks) > 1 else ("", "")
                rows.append((name.replace("_", " "), f"{total / sum(ranks.values()):.1%}", *slowest))
        return rows


@dataclass(kw_only=True)
class History:
    """Content of a record in bounded memory: long records are thinned out.

    max_metrics: largest number of metrics in one evaluation. protocol, real (metrics of real
    images): of the latest evaluation. protocols: distinct ones of the evaluations with their
    number of images, as text by dotted name. rows, columns: labels and statistics of the latest samples.
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
    num_unreadable: int = 0  # lines without a step
    max_metrics: int = 0
    protocol: object = None
    protocols: list[dict[str, str]] = field(default_factory=list)
    real: object = None
    rows: object = None
    columns: object = None
    advice: dict[str, RecordEntry] = field(default_factory=dict)
    events: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_MAX_EVENTS))
    phases: PhaseTimes = field(default_factory=PhaseTimes)
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

    @property
    def damage(self) -> str:
        """What is missing in the record; empty for a whole one."""
        if not (self.start or self.step or self.num_scores):
            return "no readable record (metrics.jsonl)"
        lines = "unreadable line" if self.num_unreadable == 1 else "unreadable lines"
        return f"{self.num_unreadable:,} {lines} in its record (metrics.jsonl)" if self.num_unreadable else ""

    def add(self, kind: object, entry: RecordEntry) -> None:
        """Add a line of this kind; of an unknown one, only its step and its time."""
        if kind != "score" or entry.step > self.step:  # scores in the background are late
            self.step = entry.step
            self.kimg = entry.kimg
        values = entry.values
        self._count_seconds(finite_or_nan(values.get("seconds")))
        entry = replace(entry, seconds=self.seconds)
        self.end = values if kind == "end" else None  # a run that was resumed has not ended
        match kind:
            case "start":
                self.start = values
                self.population = self.population.after_start(values.get("grid"))
                self.events.append((entry.step, "resumed" if values.get("resumed") else "started"))
            case "event":
                self._add_event(entry)
            case "step" | "telemetry":
                self._add_curves("", entry, values)
            case "loading":
                self._add_curves("loading/", entry, values)
            case "traffic":
                self._add_curves("links/", entry, to_mapping(values.get("links")))
            case "phases":
                self.phases.add(values)
                self._add_curves("phases/", entry, to_mapping(values.get("per_step")))
            case "generation":
                self.population.add(entry.step, entry.kimg, values, entry.seconds)
            case "score":
                self._add_score(entry)
            case "samples":
                self.rows = values.get("rows")
                self.columns = values.get("row_statistics")
                self.samples = thin_out([*self.samples, entry.brief()])
            case "advice":
                self._add_advice(entry)
            case "end":
                self.events.append((entry.step, single_line(values.get("reason")) or "ended"))
            case "checkpoint":
                self._add_checkpoint(entry)

    def _add_event(self, entry: RecordEntry) -> None:
        if "total_kimg" in entry.values:  # a rollback makes a run longer
            self.start = {**self.start, "total_kimg": entry.values["total_kimg"]}
        self.events.append((entry.step, single_line(entry.values.get("text"))))

    def _add_advice(self, entry: RecordEntry) -> None:
        name = single_line(entry.values.get("name"))
        self.advice[name] = entry.brief()
        keep_latest(self.advice, _MAX_ADVICE)
        self.events.append((entry.step, f"advice: {name}"))

    def _add_checkpoint(self, entry: RecordEntry) -> None:
        self.checkpoints += 1
        self.saves.append((entry.step, single_line(entry.values.get("path"))))
        self._saved_s[entry.step] = entry.seconds
        keep_latest(self._saved_s, _MAX_SAVES)

    def _add_score(self, entry: RecordEntry) -> None:
        self.num_scores += 1
        if entry.values.get("evaluation_mode") == "background":  # of the weights, not of their score
            entry = replace(entry, seconds=self._saved_s.get(entry.step, entry.seconds))
        self.protocol = entry.values.get("protocol")
        self.real = entry.values.get("real")
        self.max_metrics = max(self.max_metrics, len(entry.numbers.keys() - {NUM_IMAGES}))
        protocol = dict(dotted_settings(self.protocol))
        protocol[NUM_IMAGES] = single_line(entry.values.get(NUM_IMAGES))
        if protocol not in self.protocols and len(self.protocols) < _MAX_PROTOCOLS:
            self.protocols.append(protocol)
        if protocol in self.protocols:
            self.scores = thin_out([*self.scores, replace(entry.brief(), protocol=protocol)])

    def _add_curves(self, prefix: str, entry: RecordEntry, values: Mapping[str, Any]) -> None:
        for number, value in replace(entry, values=values).numbers.items():
            name = f"{prefix}{number}"
            if name in self.series or len(self.series) < _MAX_SERIES:
                line = self.series.setdefault(name, Series())
                if not line.bad and not math.isfinite(value):
                    self.events.append((entry.step, f"{name} is not finite"))
                line.add(entry.step, entry.kimg, value, entry.seconds)

    def _count_seconds(self, session_s: float) -> None:
        """Add up training time, which lines of every kind have; each session counts from zero."""
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
                if (status.st_dev, status.st_ino) != self._inode or status.st_size < self._offset:
                    self._inode = (status.st_dev, status.st_ino)
                    self._offset = 0
                    self.history = History()
                return self._read_lines(file)
        except FileNotFoundError:
            return False
        except OSError as error:
            problem = f"{self.path}: the record cannot be read ({error.strerror}); check the file"
            raise CheckpointError(problem) from None

    def _read_lines(self, file: IO[bytes]) -> bool:
        start = file.seek(self._offset)
        while line := file.readline(_MAX_LINE_BYTES):
            if not line.endswith(b"\n") and len(line) < _MAX_LINE_BYTES:
                break  # the rest is not written yet
            self._offset += len(line)
            try:
                values = to_mapping(json.loads(line))
            except (ValueError, RecursionError):
                values = {}
            step, kimg = finite_or_nan(values.get("step")), finite_or_nan(values.get("kimg"))
            if math.isnan(step) or math.isnan(kimg):
                self.history.num_unreadable += 1
            else:
                self.history.add(values.get("kind"), RecordEntry(step=int(step), kimg=kimg, values=values))
        return self._offset > start


def open_record(folder: Path) -> Record:
    """Open the record of a run folder; raises `CheckpointError` for any other folder."""
    if not any((folder / name).exists() for name in ("metrics.jsonl", "config.yaml")):
        problem = "a file" if folder.is_file() else "missing"
        if folder.is_dir():
            problem = "a folder without metrics.jsonl"
        cure = f"pass one that `{program_command()} train` has created"
        raise CheckpointError(f"{folder}: not a run folder ({problem}); {cure}")
    return Record(folder / "metrics.jsonl")
