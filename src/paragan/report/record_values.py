"""Conversion of untrusted values of a record to numbers and printable text."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from itertools import islice
from typing import Any

_MAX_DIGITS = 15  # of an integer, so that it is exact as a float
_MAX_ITEMS = 200
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
    if type(value) is int:
        return value if 0 <= value < 10**_MAX_DIGITS else None
    is_text = isinstance(value, str) and value.isascii() and value.isdecimal()
    return int(str(value)) if is_text and len(str(value)) <= _MAX_DIGITS else None


def to_mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping unchanged; an empty one for other values."""
    return value if isinstance(value, Mapping) else {}


def first_pairs(value: object, limit: int = 200) -> list[tuple[str, Any]]:
    """Return the first keys and values of a mapping; none for other values."""
    return list(islice(to_mapping(value).items(), limit))


def first_items(value: object, limit: int = 200) -> list[Any]:
    """Return the first items of a list; none for other values."""
    return value[:limit] if isinstance(value, list) else []


def single_line(text: object, max_length: int = 500) -> str:
    """Return at most `max_length` printable characters of a text, in one line."""
    line = str("" if text is None else text)[: 2 * max_length]
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
