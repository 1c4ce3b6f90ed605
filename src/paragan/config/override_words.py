"""`key.path=value` words of the command line, written into a tree of settings."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from paragan.core import strict_yaml
from paragan.core.settings_tree import COMMAND_LINE, Node, Problem, Unreadable, brief

_WORD = re.compile(r"([A-Za-z_][\w-]*(?:\.[\w-]+)*)=(.*)", re.DOTALL)


def matches(word: str) -> bool:
    """Whether a word is `key.path=value`, and not the name or path of a recipe."""
    return _WORD.fullmatch(word) is not None


def put(tree: Node, word: str, problems: list[Problem]) -> None:
    """Write one override into the tree; what cannot be written is added to `problems`.

    `penalties.0.weight=3` reaches into a list, the index after the last appends; maps or lists missing on the way are
    made.
    """
    match = _WORD.fullmatch(word)
    if match is None:
        problems.append(Problem(COMMAND_LINE, "", f"found {brief(word)}, expected key.path=value"))
        return
    try:
        _put(tree, match[1].split("."), _value(match[2], problems))
    except Unreadable as error:
        problems.append(replace(error.problem, path=match[1]))


def lay_over(tree: Node, other: Node) -> None:
    """Write all that `other` has over the tree. What has another `name` is replaced whole: its settings are others."""
    assert isinstance(other.value, dict)
    for key, value in other.value.items():
        held = tree.value.get(key) if isinstance(tree.value, dict) else None
        if (
            held is not None
            and isinstance(held.value, dict)
            and isinstance(value.value, dict)
            and "name" not in value.value
        ):
            lay_over(held, value)
        else:
            _set(tree, key, value)


def _put(tree: Node, keys: list[str], value: Node) -> None:
    here = tree
    for key, following in pairwise(keys):
        here = _inner(here, key, following)
    _entry(here, keys[-1])
    _set(here, keys[-1], value)


def _set(here: Node, key: str, value: Node) -> None:
    if isinstance(here.value, dict):
        here.value[key] = value
    elif isinstance(here.value, list):
        here.value[int(key) : int(key) + 1] = [value]


def _inner(here: Node, key: str, following: str) -> Node:
    """The node at `key`; a new list or map, as the following key asks, where there is none."""
    held = _entry(here, key)
    if held is None or held.value is None:
        held = Node(COMMAND_LINE, [] if following.isdecimal() else {})
        _set(here, key, held)
    return held


def _entry(here: Node, key: str) -> Node | None:
    """The node at `key`, None where it may be added; raises where `here` has no such place."""
    if isinstance(here.value, dict):
        return here.value.get(key)
    if not isinstance(here.value, list):
        raise Unreadable(COMMAND_LINE, f"found the value {brief(here.value)} above {key!r}, expected a map there")
    count = len(here.value)
    if not key.isdecimal() or int(key) > count:
        raise Unreadable(COMMAND_LINE, f"found the index {key!r}, expected 0 to {count} ({count} appends)")
    return here.value[int(key)] if int(key) < count else None


def _value(text: str, problems: list[Problem]) -> Node:
    """YAML where the text opens as a list, map or quotation; otherwise one scalar to its end."""
    if any("\ud800" <= character <= "\udfff" for character in text):  # how Python passes on bytes it cannot decode
        raise Unreadable(COMMAND_LINE, f"found {brief(text)}, which is not UTF-8 text")
    if text.lstrip()[:1] in ("[", "{", '"', "'"):
        return strict_yaml.document(text, COMMAND_LINE, problems)
    return Node(COMMAND_LINE, strict_yaml.scalar(text.strip()))
