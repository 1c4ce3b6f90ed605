"""Overrides: `key.path=value` words of the command line, written over a recipe.

Choosing another file, such as another model, drops the recipe's settings of the former one.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from paragan.config.sections import Section, choices
from paragan.core import strict_yaml
from paragan.core.settings_tree import COMMAND_LINE, Node, Problem, UnreadableError, entries_of, node_at, shorten

_WORD = re.compile(r"([A-Za-z_][\w-]*(?:\.[\w-]+)*)=(.*)", re.DOTALL)


class Overrides:
    """Writer of words over a tree of options `kind`; records what they drop of the recipe."""

    def __init__(self, kind: type, tree: Node) -> None:
        self.tree = tree
        self._root = Section(path="", node=tree, kind=kind)
        # section -> dotted key -> value in the recipe
        self._dropped: dict[str, dict[str, Any]] = {}

    def write(self, word: str, problems: list[Problem]) -> None:
        """Write one word: `train.batch=8`; `loss=hinge` for `loss.name=hinge`; `penalties=r1`.

        After a word that names another file, a choice has of its former settings

            loss=NAME, loss={name: …}  none
            loss.name=NAME             those of earlier words, but none of the recipe
            g.optimizer=NAME           all but the recipe's `arguments`: torch's optimisers share the others
        """
        before = {section.path: dict(entries_of(section.node)) for section in choices(self._root)}
        write_word(self.tree, word, problems)
        key = word.partition("=")[0]
        written = node_at(self.tree, key)
        is_name = written is not None and isinstance(written.value, str)
        for section in choices(self._root):
            former = before.get(section.path)
            if former is None or not isinstance(section.node.value, dict):
                continue
            is_replaced_by_name = is_name and section.path == key
            if is_replaced_by_name:
                section.node.value = {**former, **section.node.value}
            if _name(section.node.value) != _name(former):
                self._drop(section.path, section.node.value, also_words=is_replaced_by_name)

    def warnings(self, settings: Mapping[str, Any]) -> Iterator[str]:
        """Yield a line for each choice that dropped settings of the recipe, of those that the new file has, too.

        settings: by dotted key. Outside code gets no line: its settings may have any names.
        """
        for section, dropped in self._dropped.items():
            lines = [
                f"{key}={json.dumps(value, separators=(',', ':'))}"
                for key, value in dropped.items()
                if (key in settings or ".arguments." in key)
                and settings.get(key) != value
                and node_at(self.tree, key) is None
            ]
            name = settings.get(f"{section}.name")
            if lines and "." not in str(name):
                yield f"warning: {section}.name={name} drops the recipe's {' '.join(lines)}; add what you want to keep"

    def _drop(self, section: str, entries: dict[str, Node], also_words: bool) -> None:
        """Drop the recipe's settings of a former choice. also_words: those of earlier words, too."""
        dropped = self._dropped.setdefault(section, {})
        if section.endswith(".optimizer"):
            section = f"{section}.arguments"
            entries = entries_of(entries.get("arguments"))
            also_words = False
        for key in list(entries):
            is_word = entries[key].place == COMMAND_LINE
            if key != "name" and (also_words or not is_word):
                dropped[f"{section}.{key}"] = entries.pop(key).plain()


def is_override(word: str) -> bool:
    """Return whether a word is `key.path=value`, and not the name or path of a recipe."""
    return _WORD.fullmatch(word) is not None


def write_word(tree: Node, word: str, problems: list[Problem]) -> None:
    """Write one override into the tree; problems are added to `problems`.

    `penalties.0.weight=3` reaches into a list, where the index after the last appends. Missing maps
    and lists on the way are created.
    """
    match = _WORD.fullmatch(word)
    if match is None:
        problems.append(Problem(COMMAND_LINE, "", f"{shorten(word)} is not an override; use key.path=value"))
        return
    try:
        _write(tree, match[1].split("."), _parse_value(match[2], problems))
    except UnreadableError as error:
        problems.append(replace(error.problem, path=match[1]))


def merge(tree: Node, other: Node) -> None:
    """Write all settings of `other` over the tree; an entry with a `name` replaces the old one."""
    assert isinstance(other.value, dict)
    for key, value in other.value.items():
        former = entries_of(tree).get(key)
        are_maps = former is not None and isinstance(former.value, dict) and isinstance(value.value, dict)
        if former is not None and are_maps and "name" not in entries_of(value):
            merge(former, value)
        else:
            _set(tree, key, value)


def _write(tree: Node, keys: list[str], value: Node) -> None:
    node = tree
    for key, following in pairwise(keys):
        node = _descend(node, key, following)
    _entry(node, keys[-1])  # raises where the key cannot be
    _set(node, keys[-1], value)


def _set(node: Node, key: str, value: Node) -> None:
    if isinstance(node.value, dict):
        node.value[key] = value
    elif isinstance(node.value, list):
        node.value[int(key) : int(key) + 1] = [value]


def _descend(node: Node, key: str, following: str) -> Node:
    """Return the node at `key`, created if missing: a list or map, as `following` requires."""
    inner = _entry(node, key)
    if inner is None or inner.value is None:
        inner = Node(COMMAND_LINE, [] if following.isdecimal() else {})
        _set(node, key, inner)
    return inner


def _entry(node: Node, key: str) -> Node | None:
    """Return the node at `key`; None if it can be added, an error if `node` cannot have the key."""
    if isinstance(node.value, dict):
        return node.value.get(key)
    if not isinstance(node.value, list):
        raise UnreadableError(
            COMMAND_LINE, f"{key!r} cannot be set below the value {shorten(node.value)}, which is not a map"
        )
    count = len(node.value)
    if not key.isdecimal() or int(key) > count:
        raise UnreadableError(COMMAND_LINE, f"invalid index {key!r}; use 0 to {count} ({count} appends)")
    return node.value[int(key)] if int(key) < count else None


def _parse_value(text: str, problems: list[Problem]) -> Node:
    """Return a list, map or quotation as YAML, any other text as one scalar."""
    # Python passes undecodable bytes of the command line as surrogates.
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UnreadableError(COMMAND_LINE, f"{shorten(text)} is not UTF-8 text")
    if text.lstrip()[:1] in ("[", "{", '"', "'"):
        return strict_yaml.read_document(text, COMMAND_LINE, problems)
    return Node(COMMAND_LINE, strict_yaml.parse_scalar(text.strip()))


def _name(entries: Mapping[str, Node]) -> Any:
    return entries["name"].plain() if "name" in entries else None
