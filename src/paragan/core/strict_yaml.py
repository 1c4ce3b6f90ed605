"""Strict YAML, read into nodes that know their line, and written.

Unquoted scalars follow the YAML 1.2 core schema (section 10.3.2): `no` is text, `2e-4` a number, `0x1f` is 31. `010` (8
to some readers, 10 to others) and `.nan` stay text, so that a number field refuses them. Anchors, aliases, merge keys,
tags, duplicate keys and further documents are refused; so are files over 1 MiB and nests deeper than 32.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from paragan.core.files import plain_file
from paragan.core.settings_tree import Node, Place, Problem, Scalar, Unreadable, brief

_MOST_BYTES = 1 << 20
_MOST_DEPTH = 32
_MOST_DIGITS = 1000  # of a whole number; Python prints at most 4,300, and hexadecimal ones grow in decimal
_READER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


def file(path: Path, problems: list[Problem], shown: str | None = None) -> Node:
    """The map in a file; `shown` is its name in messages. Duplicate keys are added to `problems`.

    Raises `ConfigError` where the file is missing, unreadable, or not such YAML.
    """
    start = Place(str(path) if shown is None else shown, 1)
    return top(_read(path, Place(start.source)), start, problems)


def top(text: str, start: Place, problems: list[Problem]) -> Node:
    """The map in a text whose first line is `start`; an empty one where there is nothing."""
    if len(text) > _MOST_BYTES:
        raise Unreadable(start, f"found more than {_MOST_BYTES >> 20} MiB, expected a small YAML file")
    tree = document(text, start, problems)
    if tree.value is None:
        return Node(tree.place, {})
    if not isinstance(tree.value, dict):
        raise Unreadable(tree.place, f"found {brief(tree.plain())}, expected a map of `key: value`")
    return tree


def document(text: str, start: Place, problems: list[Problem]) -> Node:
    """The one YAML document in a text whose first line is `start`; a null node where there is none."""
    try:
        return _Composer(text, start, problems).tree()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = start if mark is None else _below(start, mark.line)
        raise Unreadable(place, f"found text that is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeError, ValueError):
        raise Unreadable(start, "found characters that YAML does not allow, expected plain text") from None


def scalar(text: str) -> Scalar:
    """What an unquoted scalar means. Numbers are finite."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        if len(text) <= _MOST_DIGITS and _INTEGER.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
            return number
    except ValueError:  # more digits than a float takes
        pass
    return text


def dump(tree: Any) -> str:
    """YAML that `file` reads back as an equal nest: maps as blocks, lists of scalars on one line."""
    return str(yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


def _read(path: Path, place: Place) -> str:
    try:
        with plain_file(path) as stream:
            data = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise Unreadable(place, "found no such file, expected a YAML file") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise Unreadable(place, f"expected a YAML file that can be read: {getattr(error, 'strerror', error)}") from None
    if len(data) > _MOST_BYTES:
        raise Unreadable(place, f"found more than {_MOST_BYTES >> 20} MiB, expected a small YAML file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Unreadable(Place(place.source, line), "found bytes that are not UTF-8, expected a text file") from None


class _Composer:
    """Events of the YAML library into nodes. The library's own composing is not used: it resolves aliases and tags."""

    def __init__(self, text: str, start: Place, problems: list[Problem]) -> None:
        self.start, self.problems = start, problems
        self.events: Iterator[Any] = iter(yaml.parse(text, Loader=_READER))

    def tree(self) -> Node:
        next(self.events)  # the start of the stream
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return Node(self.start, None)
        tree = self._node(next(self.events), ())
        next(self.events)  # the end of the document
        if isinstance(extra := next(self.events), yaml.DocumentStartEvent):
            raise Unreadable(self._place(extra), "found a second document (---), expected one")
        return tree

    def _node(self, event: Any, path: tuple[str, ...], place: Place | None = None) -> Node:
        place = place or self._place(event)
        self._refuse(event, path)
        if isinstance(event, yaml.ScalarEvent):
            return Node(place, scalar(event.value) if event.implicit[0] else event.value)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
                items.append(self._node(event, (*path, str(len(items)))))
            return Node(place, items)
        return Node(place, self._entries(path))

    def _entries(self, path: tuple[str, ...]) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key, place = self._key(event, path), self._place(event)
            node = self._node(next(self.events), (*path, key), place)
            if key in entries:
                text = f"found the key a second time, expected it once (first: {entries[key].place})"
                self.problems.append(Problem(place, ".".join((*path, key)), text))
            entries.setdefault(key, node)
        return entries

    def _key(self, event: Any, path: tuple[str, ...]) -> str:
        self._refuse(event, path)
        place, above = self._place(event), ".".join(path)
        if not isinstance(event, yaml.ScalarEvent):
            raise Unreadable(place, "found a list or map as a key, expected text", above)
        if event.value == "<<" and event.implicit[0]:
            raise Unreadable(place, "found a merge key (<<), expected every value written out", above)
        return str(event.value)

    def _refuse(self, event: Any, path: tuple[str, ...]) -> None:
        place, key = self._place(event), ".".join(path[:4])
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise Unreadable(place, "found an anchor or alias (&name, *name), expected every value written out", key)
        if event.tag is not None:
            raise Unreadable(place, f"found the tag {brief(event.tag)}, expected a value without a tag", key)
        if len(path) >= _MOST_DEPTH:
            raise Unreadable(place, f"found a nest deeper than {_MOST_DEPTH}, expected a flatter file", key)

    def _place(self, event: Any) -> Place:
        return _below(self.start, event.start_mark.line)


def _below(start: Place, lines: int) -> Place:
    return Place(start.source, start.line + lines) if start.line else start


class _Dumper(yaml.SafeDumper):
    """Quotes text that `scalar` would read as something else; never writes an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> Any:
    style = None if scalar(text) == text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style if text.isprintable() else '"')


def _list(dumper: _Dumper, items: list[Any]) -> Any:
    flat = not any(isinstance(item, (list, dict)) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flat)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
