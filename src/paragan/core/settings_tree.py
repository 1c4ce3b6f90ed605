"""A tree of settings that remembers where each value was written, and the problems found in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paragan.core.errors import ConfigError

Scalar = str | int | float | bool | None


@dataclass(frozen=True, order=True)
class Place:
    """Where a value was written; line 0: the source has no lines (the command line)."""

    source: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


MOST_SHOWN = 50  # problems in one message
_LONGEST = 1000  # characters of one problem
COMMAND_LINE = Place("command line")


@dataclass
class Node:
    """A value with its place; an entry of a map has the place of its key."""

    place: Place
    value: Scalar | list[Node] | dict[str, Node]

    def plain(self) -> Any:
        """The same nest without places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value


class Written(dict[str, Any]):
    """A free map of settings that knows its dotted key and where each entry was written."""

    def __init__(self, values: Mapping[str, Any], path: str = "", places: Mapping[str, Place] | None = None) -> None:
        super().__init__(values)
        self.path, self.places = path, dict(places or {})


@dataclass(frozen=True)
class Problem:
    """One thing the user must change; path is the dotted key, empty for the whole file."""

    place: Place
    path: str
    text: str

    def __str__(self) -> str:
        line = ": ".join(filter(None, (str(self.place), self.path, self.text)))
        return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


class Unreadable(ConfigError):
    """The rest of this source makes no sense after this one problem."""

    def __init__(self, place: Place, text: str, path: str = "") -> None:
        self.problem = Problem(place, path, text)
        super().__init__(str(self.problem))


def refuse(problems: Sequence[Problem]) -> None:
    """One `ConfigError` with a line per problem, in the order of the lines they stand on, or nothing."""
    if problems:
        lines = [str(problem) for problem in sorted(problems, key=lambda problem: problem.place)]
        more = [f"and {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
        raise ConfigError("\n".join([*lines[:MOST_SHOWN], *more]))


def brief(value: Any) -> str:
    """A value for a message: on one line and not long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
