"""Search space of `tune`: ranges of settings, from words such as `g.optimizer.lr=log:1e-5..1e-3`."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from paragan.core.errors import ConfigError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Value = str | int | float
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"(?:(log|int):(.*?)|({_NUMBER}))\.\.(.*)", re.DOTALL)
_NO_RANGE = "is not a range; write one as log:1e-5..1e-3, 0..1, int:16..64 or a,b,c"
# before a colon, the start of a range, perhaps as another program writes it: no plain value
_RANGE_WORDS = ("log", "int", "uniform", "float", "choice")
_CLOSING = {"[": "]", "{": "}", '"': '"', "'": "'"}


@dataclass(frozen=True)
class Dimension:
    """A setting to vary: between two numbers, or among texts.

    kind: of the values; `log` and `float` are real numbers. ends: both ends of a range. choices: the
    values of a `choice`, as text.
    """

    key: str
    kind: Literal["log", "float", "int", "choice"]
    ends: tuple[float, float] = (0.0, 0.0)
    choices: tuple[str, ...] = ()

    @property
    def distribution(self) -> BaseDistribution:
        """The range as Optuna takes it."""
        from optuna import distributions

        if self.kind == "choice":
            return distributions.CategoricalDistribution(self.choices)
        if self.kind == "int":
            return distributions.IntDistribution(int(self.ends[0]), int(self.ends[1]))
        return distributions.FloatDistribution(*self.ends, log=self.kind == "log")

    @property
    def extremes(self) -> tuple[Value, ...]:
        """All choices, or both ends: a setting that is valid at these is taken to be valid between them."""
        if self.kind == "choice":
            return self.choices
        return tuple(map(int, self.ends)) if self.kind == "int" else self.ends


def parse_space(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[Dimension, ...]]:
    """Return the settings of all trials, and the dimensions.

    A dimension is `log:a..b`, `a..b`, `int:a..b` or `x,y,z`; commas inside of brackets and quotes do
    not separate values. `ConfigError` for a range that has no values, and if there is no dimension.
    """
    settings: list[str] = []
    dimensions: dict[str, Dimension] = {}
    for word in words:
        key, _, text = word.partition("=")
        if not _RANGE.fullmatch(text) and text.partition(":")[0] in _RANGE_WORDS:
            raise ConfigError(f"{key}={text} {_NO_RANGE}")
        dimension = _dimension(key, text)
        has_value = any(setting.startswith(f"{key}=") for setting in settings)
        if key in dimensions or (dimension is not None and has_value):  # of two plain values, the last counts
            raise ConfigError(f"{key} is given twice; give it one range or value")
        if dimension is None:
            settings.append(word)
        else:
            dimensions[key] = dimension
    if not dimensions:
        raise ConfigError("tune needs a setting to vary; give it a range, such as g.optimizer.lr=log:1e-5..1e-3")
    if "train.kimg" in dimensions:
        raise ConfigError("train.kimg: trials of different lengths do not compare; give it one value")
    return tuple(settings), tuple(dimensions.values())


def parse_ranges(ranges: Mapping[str, str]) -> tuple[Dimension, ...]:
    """Return the dimensions of a program's ranges by key. `ConfigError`: one is a plain value, or Optuna is missing."""
    check_optuna()  # the command calls it before `parse_space`
    settings, dimensions = parse_space([f"{key}={text}" for key, text in ranges.items()])
    if settings:
        raise ConfigError(f"tune: {settings[0]} {_NO_RANGE}")
    return dimensions


def check_optuna() -> None:
    """Raise `ConfigError` if Optuna is not installed."""
    if find_spec("optuna") is None:
        raise ConfigError(f"tune: optuna is not installed; run {sys.executable} -m pip install 'paragan[tune]'")


def trial_words(values: Mapping[str, Value]) -> list[str]:
    """Return the values of a trial as `key=value` words."""
    return [f"{key}={value}" for key, value in values.items()]


def _dimension(key: str, text: str) -> Dimension | None:
    """Return the dimension that a value describes; None for a plain value.

    `log:a..b`, `int:a..b`: of that kind; `a..b`: `float`; `x,y`: a choice; anything else is plain.
    """
    match = _RANGE.fullmatch(text)
    if match is not None and "..." in text:
        raise ConfigError(f"{key}={text}: a range has two dots; write 1e-5..1e-3, or 0.5 instead of .5")
    if match is None:
        choices = _split(text)
        if len(choices) == 1:
            return None
        if "" in choices or len(set(choices)) < len(choices):
            raise ConfigError(f"{key}={text}: a value is empty or given twice; give each value once")
        return Dimension(key, "choice", choices=choices)
    kind = match[1] or "float"  # groups: a kind with the first end, or the first end alone; the second end
    low = _number(key, text, match[2] if match[1] else match[3])
    high = _number(key, text, match[4])
    if kind == "int" and not (low.is_integer() and high.is_integer()):
        raise ConfigError(f"{key}={text}: int: is for whole numbers; leave int: out")
    if kind == "log" and low <= 0:
        raise ConfigError(f"{key}={text}: log: is for numbers above 0; raise {low:g}, or leave log: out")
    if low == high:
        raise ConfigError(f"{key}={text} is a single value; write {key}={match[4]}, or a greater end")
    if low > high:
        raise ConfigError(f"{key}={text} is empty; give the smaller number first")
    return Dimension(key, kind, (low, high))  # type: ignore[arg-type]


def _number(key: str, text: str, part: str) -> float:
    """Return one end of a range `text`, the number in its `part`."""
    value = float(part) if re.fullmatch(_NUMBER, part) else math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{key}={text}: {part!r} is not a number; write a range as 1e-5..1e-3")
    return value


def _split(text: str) -> tuple[str, ...]:
    """Return the parts of a text between commas outside of brackets and quotes."""
    parts = [""]
    closing: list[str] = []  # what ends each bracket or quote that is open; in a quote nothing else opens
    for character in text:
        if closing and character == closing[-1]:
            closing.pop()
        elif character in _CLOSING and (not closing or closing[-1] in "]}"):
            closing.append(_CLOSING[character])
        if character == "," and not closing:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(parts)
