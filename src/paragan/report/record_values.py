"""A line of an untrusted record: its values as numbers and printable text, of bounded size."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any

from paragan.report.series import Point

_MAX_DIGITS = 15  # of an integer, so that it is exact as a float
_MAX_ITEMS = 200  # of a mapping or list
_MAX_ENTRIES = 1000  # of evaluations and of samples
_MAX_VALUES = 64  # stored per line
_MAX_METRICS = 24
_EMPTY_RANGE = (math.inf, -math.inf)
_POSITION_KEYS = ("kind", "step", "kimg", "seconds", "eta_s")
NUM_IMAGES = "num_images"  # a number of an evaluation that is not a metric
_SHARED_SECTIONS = ("reference", "compared", "extractor_settings")  # of a protocol


def to_number(value: object) -> float | None:
    """Return a number as a float, finite or not; None for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def finite_or_nan(value: object) -> float:
    """Return a finite number as a float; NaN for other values."""
    converted = to_number(value)
    return converted if converted is not None and math.isfinite(converted) else math.nan


def to_natural(value: object) -> int | None:
    """Return a non-negative integer, given as a number or as text; None for other values."""
    if type(value) is int:  # not True for 1
        return value if 0 <= value < 10**_MAX_DIGITS else None
    is_text = isinstance(value, str) and value.isascii() and value.isdecimal()
    return int(str(value)) if is_text and len(str(value)) <= _MAX_DIGITS else None


def to_mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping unchanged; an empty one for other values."""
    return value if isinstance(value, Mapping) else {}


def first_pairs(value: object, limit: int = _MAX_ITEMS) -> list[tuple[str, Any]]:
    """Return the first keys and values of a mapping; none for other values."""
    return list(islice(to_mapping(value).items(), limit))


def first_items(value: object, limit: int = _MAX_ITEMS) -> list[Any]:
    """Return the first items of a list; none for other values."""
    return value[:limit] if isinstance(value, list) else []


def single_line(text: object, max_length: int = 500) -> str:
    """Return at most `max_length` printable characters of a text, in one line."""
    line = str("" if text is None else text)[: 2 * max_length]  # twice: spaces and controls go
    if line.isprintable():  # the common case, and much faster
        return line[:max_length]
    line = " ".join(line.split())
    printable = (c for c in line if unicodedata.category(c) not in ("Cc", "Cf", "Cs"))
    return "".join(printable)[:max_length]


def setting_text(value: object) -> str:
    """Return a setting as in a recipe."""
    return single_line(value if isinstance(value, str) else json.dumps(value))


def dotted_settings(settings: object, prefix: str = "", depth: int = 4) -> list[tuple[str, str]]:
    """Return nested settings as pairs of dotted name and value."""
    if not isinstance(settings, Mapping) or not depth:
        return [(prefix, single_line(settings))] if prefix else []
    pairs: list[tuple[str, str]] = []
    for name, value in first_pairs(settings):
        pairs += dotted_settings(value, f"{prefix}.{single_line(name)}".strip("."), depth - 1)
    return pairs[:_MAX_ITEMS]


def comparable_part(protocol: Mapping[str, str], metric: str) -> dict[str, str]:
    """Return the fields of a protocol, by dotted name, on which the values of a metric depend.

    Left out are the sections of other metrics, and the real images that are scored for comparison.
    """
    sections = (*_SHARED_SECTIONS, re.split(r"[\[@]", metric)[0])  # fd[judge] and inception_score@50k have a suffix
    prefixes = tuple(f"{section}." for section in sections)
    return {name: text for name, text in protocol.items() if "." not in name or name.startswith(prefixes)}


def keep_latest(items: dict[Any, Any], limit: int) -> None:
    """Delete the oldest items until at most `limit` are left."""
    while len(items) > limit:
        del items[next(iter(items))]


@dataclass(frozen=True, kw_only=True)
class RecordEntry:
    """Line of the record at its place in the run. seconds: of training. protocol: of an evaluation."""

    step: int
    kimg: float
    values: Mapping[str, Any]
    seconds: float = 0.0
    protocol: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Numeric values by name."""
        numbers = ((single_line(k), to_number(v)) for k, v in self.values.items() if k not in _POSITION_KEYS)
        return {name: value for name, value in numbers if value is not None}

    def interval(self, metric: str) -> tuple[float, float] | None:
        """Return the ends of a metric's interval; None without one."""
        items = first_items(to_mapping(self.values.get("intervals")).get(metric), limit=3)  # three are no interval
        ends = [finite_or_nan(item) for item in items]
        return (ends[0], ends[1]) if len(ends) == 2 and ends[0] <= ends[1] else None

    def protocol_of(self, metric: str) -> frozenset[tuple[str, str]]:
        """Return the fields of the protocol on which a metric depends; only values with equal ones compare."""
        return frozenset(comparable_part(self.protocol, metric).items())

    def point(self, metric: str) -> Point:
        """Return the value of a metric with its interval; its range is empty without one."""
        point = Point.of(self.step, self.kimg, self.numbers.get(metric, math.nan), self.seconds)
        point.low, point.high = self.interval(metric) or _EMPTY_RANGE
        return point

    def brief(self) -> RecordEntry:
        """Return a copy with only the first scalar values and shortened texts, of bounded size."""
        scalars = ((single_line(k), v) for k, v in self.values.items() if not isinstance(v, list | dict))
        first = islice(scalars, _MAX_VALUES)
        stored: dict[str, Any] = {k: single_line(v) if isinstance(v, str) else v for k, v in first}
        directions = first_pairs(self.values.get("directions"), _MAX_METRICS)
        stored["directions"] = {single_line(k): to_number(v) for k, v in directions}
        intervals = first_pairs(self.values.get("intervals"), _MAX_METRICS)
        stored["intervals"] = {single_line(name): list(self.interval(name) or ()) for name, _ in intervals}
        return replace(self, values=stored)


def metric_names(scores: Iterable[RecordEntry]) -> list[str]:
    """Return the 24 most frequent metrics of the evaluations, in the order of the record."""
    counts = Counter(chain.from_iterable(entry.numbers for entry in scores))
    del counts[NUM_IMAGES]
    frequent = dict(counts.most_common(_MAX_METRICS))
    return [name for name in counts if name in frequent]


def thin_out(entries: list[RecordEntry], limit: int = _MAX_ENTRIES) -> list[RecordEntry]:
    """Return at most `limit` entries: half as many at equal distances, the last, and the extremes of each metric.

    Distances in steps, so that a list may be thinned out again as it grows. limit: at least 102, as 49 always stay.
    """
    if len(entries) <= limit:
        return entries
    steps = [entry.step for entry in entries]
    distance = max(1.0, 2 * (max(steps) - min(steps)) / limit)
    first_in_bin = {step // distance: index for index, step in reversed([*enumerate(steps)])}
    selected = {*first_in_bin.values(), len(entries) - 1}
    for name in metric_names(entries):
        values = (entry.numbers.get(name, math.nan) for entry in entries)
        finite = [(value, index) for index, value in enumerate(values) if math.isfinite(value)]
        selected |= {index for _, index in (min(finite), max(finite))} if finite else set()
    return [entries[index] for index in sorted(selected)]
