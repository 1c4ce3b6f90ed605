"""Lines of a record with their position in the run, thinned out to a limit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any

from paragan.report.record_values import finite_or_nan, first_items, first_pairs, single_line, to_mapping, to_number

_MAX_ENTRIES = 1000  # of evaluations and of samples
_MAX_VALUES = 64  # stored per line
_MAX_METRICS = 24
_POSITION_KEYS = ("kind", "step", "kimg", "seconds", "eta_s")
NUM_IMAGES = "num_images"  # a number of an evaluation that is not a metric


@dataclass(frozen=True)
class RecordEntry:
    """Line of the record with its position in the run.

    seconds: of training, over all sessions. stamp: of an evaluation, the index of its protocol in
    `History.stamps`; only evaluations of one protocol compare.
    """

    step: int
    kimg: float
    values: Mapping[str, Any]
    seconds: float = 0.0
    stamp: int = 0

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Numeric values by name."""
        numbers = ((single_line(k), to_number(v)) for k, v in self.values.items() if k not in _POSITION_KEYS)
        return {name: value for name, value in numbers if value is not None}

    def interval(self, metric: str) -> tuple[float, float] | None:
        """Return the ends of a metric's interval; None without one."""
        ends = [finite_or_nan(end) for end in first_items(to_mapping(self.values.get("intervals")).get(metric), 3)]
        return (ends[0], ends[1]) if len(ends) == 2 and ends[0] <= ends[1] else None

    def brief(self) -> RecordEntry:
        """Return a copy with only the first scalar values and shortened texts, of bounded size."""
        scalars = ((k, v) for k, v in self.values.items() if not isinstance(v, list | dict))
        first = islice(scalars, _MAX_VALUES)
        stored = {single_line(k): single_line(v) if isinstance(v, str) else v for k, v in first}
        directions = first_pairs(self.values.get("directions"), _MAX_METRICS)
        stored["directions"] = {single_line(k): to_number(v) for k, v in directions}
        names = [name for name, _ in first_pairs(self.values.get("intervals"), _MAX_METRICS)]
        stored["intervals"] = {single_line(name): list(self.interval(name) or ()) for name in names}
        return replace(self, values=stored)


def metric_names(scores: Iterable[RecordEntry]) -> list[str]:
    """Return the 24 most frequent metrics of the evaluations, in the order of the record."""
    counts = Counter(chain.from_iterable(entry.numbers for entry in scores))
    del counts[NUM_IMAGES]
    frequent = {name for name, _ in counts.most_common(_MAX_METRICS)}
    return [name for name in counts if name in frequent]


def thin_out(entries: list[RecordEntry], new: RecordEntry) -> list[RecordEntry]:
    """Append an entry; above the limit, drop every second entry.

    The last entry and the extremes of each metric remain.
    """
    entries.append(new)
    return entries if len(entries) <= _MAX_ENTRIES else every_second(entries)


def every_second(entries: list[RecordEntry]) -> list[RecordEntry]:
    """Return every second entry, the last one, and the extremes of each metric."""
    selected = {id(entry) for entry in [*entries[::2], entries[-1]]}
    for name in metric_names(entries):
        values = (entry.numbers.get(name, math.nan) for entry in entries)
        finite = [(value, i) for i, value in enumerate(values) if math.isfinite(value)]
        selected |= {id(entries[i]) for _, i in (min(finite), max(finite))} if finite else set()
    return [entry for entry in entries if id(entry) in selected]
