"""Classes and numbers of samples as a user names them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.registry import closest_name, did_you_mean

Label = str | SupportsIndex
_MAX_IMAGES = 1 << 20  # all of them are in memory at once


def as_list(labels: Label | Sequence[Label]) -> list[Any]:
    """Return one label, or several, as a list."""
    values = labels.tolist() if isinstance(labels, Tensor | np.ndarray) else labels
    return list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]


def class_numbers(
    labels: Label | Sequence[Label], names: Sequence[str], num_classes: int, option: str = "labels"
) -> list[int]:
    """Return the numbers of classes. option: name in messages. Raises `ConfigError` for one that does not exist."""
    listed = as_list(labels)
    if not listed:
        raise ConfigError(f"{option} is an empty list; name at least one class, or leave it out")
    if not num_classes:
        raise ConfigError(f"{option}: this generator is unconditional; leave it out")
    return [_number(label, names, num_classes, option) for label in listed]


def _number(label: Label, names: Sequence[str], num_classes: int, option: str) -> int:
    """Return the class with this number, or this name (ignoring case if that is unique)."""
    if isinstance(label, str):
        same = [label] if label in names else [name for name in names if name.casefold() == label.casefold()]
        if len(same) == 1:
            return names.index(same[0])
    try:
        is_digits = isinstance(label, str) and label.isdecimal()
        number = int(label) if is_digits else operator.index(label)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = -1
    if isinstance(label, bool) or not 0 <= number < num_classes:
        raise ConfigError(_unknown(label, names, num_classes, option))
    return number


def _unknown(label: Label, names: Sequence[str], num_classes: int, option: str) -> str:
    listed = [" ".join(name.split()) for name in names[:20]]
    if len(names) > 20:
        listed.append("…")
    unknown = " ".join(repr(label).split())[:60]
    is_name = isinstance(label, str) and not label.lstrip("+-").isdecimal()  # no suggestion for a number
    meant = did_you_mean(closest_name(str(label), names) if is_name else None)
    one_of_names = f"one of {', '.join(listed)} or " if listed else ""
    return f"{option}: unknown class {unknown}; choose {one_of_names}a number below {num_classes}{meant}"


def check_count(n: object) -> None:
    """Raise `ConfigError` unless n is a number of samples."""
    if type(n) is not int or not 0 < n <= _MAX_IMAGES:
        raise ConfigError(f"n must be an integer from 1 to {_MAX_IMAGES:,}, not {n!r}")
