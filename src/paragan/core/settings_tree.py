"""A tree of settings with the file and line of each value, and the problems in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paragan.core.errors import ConfigError

Scalar = str | int | float | bool | None


@dataclass(frozen=True, order=True)
class SourceLocation:
    """The file and line of a value; line 0: the source has no lines (the command line)."""

    source: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


MAX_PROBLEMS = 50  # problems in one message
_MAX_CHARACTERS = 1000  # characters of one problem
COMMAND_LINE = SourceLocation("command line")


@dataclass
class Node:
    """A value with its location; an entry of a map has the location of its key."""

    place: SourceLocation
    value: Scalar | list[Node] | dict[str, Node]

    def plain(self) -> Any:
        """Return the nested value without locations."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value


def entries_of(node: Node | None) -> dict[str, Node]:
    """Return the entries of a map; empty for anything else."""
    return node.value if node is not None and isinstance(node.value, dict) else {}


def node_at(tree: Node, path: str) -> Node | None:
    """Return the node at a dotted key; None where nothing is written."""
    node: Node | None = tree
    for key in path.split("."):
        if node is not None and isinstance(node.value, list):
            node = node.value[int(key)] if key.isdecimal() and int(key) < len(node.value) else None
        else:
            node = entries_of(node).get(key)
    return node


class LocatedDict(dict[str, Any]):
    """A map with free keys, its dotted key in the config and the location of each entry.

    Options keep it, so that what is wrong with a value only in use, as in an optimiser's constructor, names its line.
    """

    def __init__(
        self, values: Mapping[str, Any], path: str = "", places: Mapping[str, SourceLocation] | None = None
    ) -> None:
        super().__init__(values)
        self.path = path
        self.places = dict(places or {})


def located_key(values: Mapping[str, Any], key: str, default: str) -> str:
    """Return the location, if known, and dotted key of an entry, or of the map if `key` is empty.

    default: the dotted key of a map that was not read from a config.
    """
    path = values.path if isinstance(values, LocatedDict) else default
    place = values.places.get(key) if isinstance(values, LocatedDict) else None
    dotted = f"{path}.{key}" if key else path
    return dotted if place is None else f"{place}: {dotted}"


@dataclass(frozen=True)
class Problem:
    """One thing the user has to change. path: the dotted key; empty for the whole file."""

    place: SourceLocation
    path: str
    text: str
    removed: str = ""  # of a setting or value that an earlier version had: its words in a list of such

    def __str__(self) -> str:
        line = ": ".join(filter(None, (str(self.place), self.path, self.text)))
        return line if len(line) <= _MAX_CHARACTERS else f"{line[: _MAX_CHARACTERS - 3]}..."


class UnreadableError(ConfigError):
    """A problem after which the rest of the source cannot be read."""

    def __init__(self, place: SourceLocation, text: str, path: str = "") -> None:
        self.problem = Problem(place, path, text)
        super().__init__(str(self.problem))


class ProblemsError(ConfigError):
    """All problems of a config, sorted by location: a line for each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.place)
        lines = [str(problem) for problem in self.problems]
        more = [f"and {len(lines) - MAX_PROBLEMS} more"] if len(lines) > MAX_PROBLEMS else []
        super().__init__("\n".join([*lines[:MAX_PROBLEMS], *more]))


def shorten(value: Any) -> str:
    """Return a value for a message, on one line of at most 60 characters."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def flatten(tree: Any, path: str = "") -> dict[str, Any]:
    """Return leaves by dotted key; a list of scalars, and an empty map or list, is a leaf."""
    nested = isinstance(tree, list) and any(isinstance(item, dict) for item in tree)
    entries = {str(i): item for i, item in enumerate(tree)} if nested else tree
    if not isinstance(entries, dict) or not entries:
        return {path: tree}
    flat: dict[str, Any] = {}
    for key, item in entries.items():
        flat |= flatten(item, f"{path}.{key}" if path else key)
    return flat
