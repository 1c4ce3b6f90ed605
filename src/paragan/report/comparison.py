"""Several runs side by side: where their settings differ, and which of their scores compare."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from paragan.core.errors import ConfigError
from paragan.core.settings_tree import Problem, flatten
from paragan.core.strict_yaml import read_file
from paragan.report.metric_notes import note_of
from paragan.report.panels import best_evaluation
from paragan.report.record import History, open_record
from paragan.report.record_values import RecordEntry, comparable_part, metric_names, setting_text, single_line
from paragan.report.run_state import RunState, run_state

MAX_RUNS = 15
MAX_PROTOCOLS = 15  # listed
_MAX_FIELDS = 50  # of protocols
_MAX_SETTINGS = 200
_MAX_METRICS = 24
_LABELS = "ABCDEFGHIJKLMNO"
_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A run with its letter. settings: by dotted key; None if config.yaml cannot be read."""

    label: str
    name: str
    folder: Path
    history: History
    state: RunState
    settings: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class ComparedValue:
    """Best value of a metric of one run, or its last one if neither direction is better.

    protocol: index in `Comparison.protocols`. last: the newest value.
    """

    value: float
    interval: tuple[float, float] | None
    entry: RecordEntry
    protocol: int
    last: float


@dataclass(frozen=True)
class ScoreRow:
    """Values of a metric by run; None: the run has none.

    best: index of the best value; None without a direction, for a tie, or if not all values compare.
    """

    metric: str
    values: tuple[ComparedValue | None, ...]
    best: int | None

    @property
    def compares(self) -> bool:
        """Whether all values were measured by one protocol."""
        return len({value.protocol for value in self.values if value is not None}) <= 1


@dataclass(frozen=True)
class Comparison:
    """Runs to compare, in the order of the command.

    Values of a metric compare if their protocols agree in the fields on which it depends (`comparable_part`).
    `protocols` has the fields alone in which values of some metric differ; a value has the number of the first of them
    that agrees with its own for its metric.
    """

    runs: tuple[ComparedRun, ...]

    @cached_property
    def _differing_fields(self) -> set[str]:
        """Fields of protocols for which values of some metric do not compare."""
        fields: set[str] = set()
        for metric in self.metrics:
            entries = [entry for run in self.runs for entry in run.history.scores if metric in entry.numbers]
            protocols = [dict(protocol) for protocol in {entry.protocol_of(metric) for entry in entries}]
            names = set(chain.from_iterable(protocols))
            fields |= {name for name in names if len({protocol.get(name) for protocol in protocols}) > 1}
        return fields

    @cached_property
    def protocols(self) -> list[dict[str, str]]:
        """Distinct protocols of all evaluations, with their number of images, of the fields that differ."""
        distinct: list[dict[str, str]] = []
        for protocol in chain.from_iterable(run.history.protocols for run in self.runs):
            differing = self._differing_part(protocol)
            if differing not in distinct:
                distinct.append(differing)
        return distinct

    def _differing_part(self, protocol: Mapping[str, str]) -> dict[str, str]:
        return {name: text for name, text in protocol.items() if name in self._differing_fields}

    @cached_property
    def metrics(self) -> list[str]:
        """Names of the metrics of all runs."""
        names = chain.from_iterable(metric_names(run.history.scores) for run in self.runs)
        return list(dict.fromkeys(names))[:_MAX_METRICS]

    @cached_property
    def scores(self) -> list[ScoreRow]:
        """Values of every metric."""
        return [self._score_row(metric) for metric in self.metrics]

    def protocol_of(self, entry: RecordEntry, metric: str) -> int:
        """Return the index of the protocol of a value."""
        part = comparable_part(self._differing_part(entry.protocol), metric)
        return self._first_protocols[metric, frozenset(part.items())]

    @cached_property
    def _first_protocols(self) -> dict[tuple[str, frozenset[tuple[str, str]]], int]:
        """Index of the first protocol for a metric with these fields; a table, as there are many values."""
        first: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        for number, protocol in enumerate(self.protocols):
            for metric in self.metrics:
                first.setdefault((metric, frozenset(comparable_part(protocol, metric).items())), number)
        return first

    @cached_property
    def protocol_differences(self) -> list[tuple[str, list[str]]]:
        """Fields of the first 15 protocols that differ, with the text of each; empty if none do."""
        protocols = self.protocols[:MAX_PROTOCOLS]
        names = dict.fromkeys(chain.from_iterable(protocols))
        rows = [(name, [protocol.get(name, "–") for protocol in protocols]) for name in names]
        return [(name, texts) for name, texts in rows if len(set(texts)) > 1][:_MAX_FIELDS]

    @property
    def protocol_names(self) -> list[str]:
        """Names of the columns of `protocol_differences`, with the runs that they belong to."""
        names = []
        for number, protocol in enumerate(self.protocols[:MAX_PROTOCOLS], start=1):
            labels = [run.label for run in self.runs if protocol in map(self._differing_part, run.history.protocols)]
            names.append(f"protocol {number} ({', '.join(labels)})")
        return names

    @cached_property
    def setting_differences(self) -> list[tuple[str, list[str]]]:
        """Settings that differ between the readable configs: key, and the text of each run."""
        readable = [run.settings for run in self.runs if run.settings is not None]
        keys = dict.fromkeys(chain.from_iterable(readable))
        differing = [key for key in keys if len({_exact(settings.get(key, _ABSENT)) for settings in readable}) > 1]
        return [(single_line(key), self._setting_texts(key)) for key in sorted(differing)]

    def _setting_texts(self, key: str) -> list[str]:
        """Return a setting of every run; texts in quotes where a number would look the same."""
        values = [_ABSENT if run.settings is None else run.settings.get(key, _ABSENT) for run in self.runs]
        texts = ["–" if value is _ABSENT else setting_text(value) for value in values]
        if len(set(texts)) == len(set(map(_exact, values))):
            return texts
        return ["–" if value is _ABSENT else single_line(_exact(value)) for value in values]

    @property
    def warnings(self) -> list[str]:
        """Sentences about scores that do not compare, and configs that cannot be read."""
        lines = []
        if self.protocol_differences:
            fields = ", ".join(name for name, _ in self.protocol_differences)
            lines.append(
                f"Scores by {', '.join(self.protocol_names)} do not compare, because they differ in: {fields}. "
                "They are marked, and never share a chart."
            )
        for run in self.runs:
            if run.settings is None:
                lines.append(f"{run.label} has no readable config.yaml; its settings are not compared.")
            if run.history.damage:
                lines.append(f"{run.label} has {run.history.damage}.")
        return lines

    def _score_row(self, metric: str) -> ScoreRow:
        values = tuple(self._value(run, metric) for run in self.runs)
        known = [(n, value) for n, value in enumerate(values) if value is not None and math.isfinite(value.value)]
        row = ScoreRow(metric, values, None)
        direction = note_of(metric, known[0][1].entry.values).direction if known else 0
        if not direction or len(known) < 2 or not row.compares:
            return row
        best, first = max(known, key=lambda pair: direction * pair[1].value)
        is_tie = sum(value.value == first.value for _, value in known) > 1
        return row if is_tie else ScoreRow(metric, values, best)

    def _value(self, run: ComparedRun, metric: str) -> ComparedValue | None:
        entries = [entry for entry in run.history.scores if metric in entry.numbers]
        if not entries:
            return None
        entry = best_evaluation(metric, entries) or entries[-1]
        return ComparedValue(
            value=entry.numbers[metric],
            interval=entry.interval(metric),
            entry=entry,
            protocol=self.protocol_of(entry, metric),
            last=entries[-1].numbers[metric],
        )


def read_comparison(folders: Sequence[Path]) -> Comparison:
    """Read the records and configs of run folders.

    Raises `ConfigError` for fewer than 2 or more than 15 runs or a run that is named twice, and
    `CheckpointError` for a folder that is not a run.
    """
    if len(folders) < 2:
        raise ConfigError("compare: one run is not a comparison; pass two run folders or more")
    if len(folders) > MAX_RUNS:
        raise ConfigError(f"compare: {len(folders)} runs are more than {MAX_RUNS}; pass fewer run folders")
    places = [folder.resolve() for folder in folders]
    for number, folder in enumerate(folders):
        if places[number] in places[:number]:
            raise ConfigError(f"compare: {folder} is named twice; pass every run once")
    names = [place.name for place in places]
    titles = [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]
    read = zip(_LABELS, titles, folders, strict=False)
    return Comparison(tuple(_read_run(label, title, folder) for label, title, folder in read))


def listed_settings(comparison: Comparison) -> tuple[list[tuple[str, list[str]]], int]:
    """Return the first 200 settings that differ, and the number of others."""
    rows = comparison.setting_differences
    return rows[:_MAX_SETTINGS], max(0, len(rows) - _MAX_SETTINGS)


def _read_run(label: str, name: str, folder: Path) -> ComparedRun:
    record = open_record(folder)
    record.read()
    return ComparedRun(
        label=label,
        name=single_line(name, max_length=80),
        folder=folder,
        history=record.history,
        state=run_state(folder, record.history),
        settings=_read_settings(folder),
    )


def _read_settings(folder: Path) -> dict[str, Any] | None:
    problems: list[Problem] = []
    try:
        return flatten(read_file(folder / "config.yaml", problems).plain())
    except ConfigError:
        return None


def _exact(value: Any) -> str | None:
    return None if value is _ABSENT else json.dumps(value, sort_keys=True)
