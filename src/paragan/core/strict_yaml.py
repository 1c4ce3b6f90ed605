"""Reader and writer of strict YAML; every node has its file and line.

Unquoted scalars follow the YAML 1.2 core schema (section 10.3.2): `no` is text, `2e-4` a number, `0x1f` is 31. `010`
(8 to some readers, 10 to others) and `.nan` stay text, so that a number field refuses them. Anchors, aliases, merge
keys, tags, duplicate keys and further documents are refused; so are files over 1 MiB and nests deeper than 32.
"""

import math
import re
from pathlib import Path
from typing import Any

import yaml

from paragan.core.files import read_bytes
from paragan.core.settings_tree import Node, Problem, Scalar, SourceLocation, UnreadableError, shorten

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 32
_MAX_DIGITS = 1000  # of an integer; Python converts at most 4,300 decimal ones
_READER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


def read_file(path: Path, problems: list[Problem], shown: str | None = None) -> Node:
    """Return the map in a file; duplicate keys are added to `problems`.

    shown: name of the file in messages. Raises `ConfigError` if it is missing or not strict YAML.
    """
    start = SourceLocation(str(path) if shown is None else shown, line=1)
    return read_map(_read(path, SourceLocation(start.source)), start, problems)


def read_map(text: str, start: SourceLocation, problems: list[Problem]) -> Node:
    """Return the map in a text whose first line is at `start`; an empty map for an empty text."""
    if len(text) > _MAX_BYTES:
        raise UnreadableError(start, f"larger than {_MAX_BYTES >> 20} MiB; give a smaller YAML file")
    tree = read_document(text, start, problems)
    if tree.value is None:
        return Node(tree.place, {})
    if not isinstance(tree.value, dict):
        raise UnreadableError(tree.place, f"must be a map of `key: value`, not {shorten(tree.plain())}")
    return tree


def read_document(text: str, start: SourceLocation, problems: list[Problem]) -> Node:
    """Return the only YAML document of a text that begins at `start`; a null node if empty."""
    try:
        _check_supported(text, start)
        root = yaml.compose(text, Loader=_READER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = start if mark is None else _below(start, mark.line)
        raise UnreadableError(place, f"not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeError, ValueError):
        raise UnreadableError(start, "contains characters that YAML does not allow; save it as plain text") from None
    return Node(start, value=None) if root is None else _convert(root, "", start, problems)


def parse_scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar. Numbers are finite."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        if len(text) <= _MAX_DIGITS and _INTEGER.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
            return number
    except ValueError:  # more digits than a float takes
        pass
    return text


def to_yaml(tree: Any) -> str:
    """Return YAML that `read_file` reads back: maps as blocks, lists of scalars on one line."""
    return str(yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


def _read(path: Path, place: SourceLocation) -> str:
    try:
        data = read_bytes(path, _MAX_BYTES)
    except FileNotFoundError:
        raise UnreadableError(place, "does not exist; give the path of a YAML file") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise UnreadableError(place, f"cannot be read: {getattr(error, 'strerror', error)}") from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        bad_line = SourceLocation(place.source, data[: error.start].count(b"\n") + 1)
        raise UnreadableError(bad_line, "not UTF-8 text; save the file as UTF-8") from None


def _check_supported(text: str, start: SourceLocation) -> None:
    """Raise for what strict YAML does not have, before a tree is built: an alias may hide a huge one."""
    depth = 0
    num_documents = 0
    events: Any = yaml.parse(text, Loader=_READER)
    for event in events:
        place = _below(start, event.start_mark.line)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        num_documents += isinstance(event, yaml.DocumentStartEvent)
        if num_documents > 1:
            raise UnreadableError(place, "a second document (---) is not supported; split the file")
        if depth > _MAX_DEPTH:
            raise UnreadableError(place, f"nested deeper than {_MAX_DEPTH} levels; write a flatter file")
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            raise UnreadableError(place, "anchors and aliases (&name, *name) are not supported; write every value out")
        if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag is not None:
            raise UnreadableError(
                place, f"the tag {shorten(event.tag)} is not supported; write the value without a tag"
            )


def _convert(node: yaml.Node, path: str, start: SourceLocation, problems: list[Problem]) -> Node:
    place = _below(start, node.start_mark.line)
    if isinstance(node, yaml.ScalarNode):
        return Node(place, node.value if node.style else parse_scalar(node.value))
    if isinstance(node, yaml.SequenceNode):
        return Node(place, [_convert(item, f"{path}{i}.", start, problems) for i, item in enumerate(node.value)])
    entries: dict[str, Node] = {}
    for key_node, value in node.value:
        at = _below(start, key_node.start_mark.line)
        key = _key(key_node, at, path)
        entry = _convert(value, f"{path}{key}.", start, problems)
        if key in entries:
            text = f"duplicate key, first at {entries[key].place}; remove one of them"
            problems.append(Problem(at, f"{path}{key}", text))
        entries.setdefault(key, Node(at, entry.value))
    return Node(place, entries)


def _key(node: yaml.Node, place: SourceLocation, path: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise UnreadableError(place, "a list or map cannot be a key; use text", path.rstrip("."))
    if node.value == "<<" and not node.style:
        raise UnreadableError(place, "merge keys (<<) are not supported; write every value out", path.rstrip("."))
    return str(node.value)


def _below(start: SourceLocation, lines: int) -> SourceLocation:
    return SourceLocation(start.source, start.line + lines) if start.line else start


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Dumper that quotes ambiguous text and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> Any:
    style = None if parse_scalar(text) == text else "'"
    style = style if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: _Dumper, items: list[Any]) -> Any:
    flat = not any(isinstance(item, (list, dict)) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flat)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
