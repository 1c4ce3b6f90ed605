"""Values of a record that may say anything, as numbers and as text that can be shown."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Any

_DIGITS = 15  # of a whole number, so that it is exact as a float too


def to_number(value: object) -> float | None:
    """As a float, also one that is not finite; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def finite_or_nan(value: object) -> float:
    """As a float; not a number where it is none, or none that is finite."""
    found = to_number(value)
    return found if found is not None and math.isfinite(found) else math.nan


def to_natural(value: object) -> int | None:
    """A whole number from 0, also as the text of a key; None for anything else."""
    if type(value) is int:
        return value if 0 <= value < 10**_DIGITS else None
    is_text = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _DIGITS
    return int(str(value)) if is_text else None


def to_mapping(value: object) -> Mapping[str, Any]:
    """Itself, or an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def single_line(text: object, most: int = 500) -> str:
    """One line a page and a terminal can show: no control, format or broken characters, at most `most` of them."""
    line = str("" if text is None else text)[: 2 * most]
    if line.isprintable():  # nearly always, and much faster
        return line[:most]
    line = " ".join(line.split())
    return "".join(c for c in line if unicodedata.category(c) not in ("Cc", "Cf", "Cs"))[:most]
