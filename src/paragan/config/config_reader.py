"""Reads option dataclasses from a tree of settings and collects every problem.

The tree holds what is written, the dataclasses what is valid; a value at a leaf is checked by a function that is passed
in, so that this file needs no validation library.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from paragan.config.field_types import (
    category_of,
    default_of,
    describe,
    is_path,
    is_record,
    is_union,
    literal_words,
)
from paragan.config.hints import Hints
from paragan.core import outside_file, registry
from paragan.core.errors import ConfigError
from paragan.core.option_types import Category, Choice
from paragan.core.registry import closest_name, describe_choices, did_you_mean
from paragan.core.settings_tree import (
    COMMAND_LINE,
    MAX_PROBLEMS,
    LocatedDict,
    Node,
    Problem,
    SourceLocation,
    shorten,
)

T = TypeVar("T")
_INVALID: Any = object()  # stands for a value that has a problem


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


ANY = _Everything()  # contains every name
NAMES_ONLY = _Everything()  # contains every name, and outside code is not imported: its options stay as written
_SIMILARITY = 0.75  # of a key in another section; below, suggestions are nonsense


@dataclass(frozen=True)
class _UnknownKey:
    """An unknown key, its known siblings, and the category of the file whose options these are."""

    place: SourceLocation
    path: str
    value: Any
    siblings: list[str]
    category: str | None


class ConfigReader:
    """Reads one config.

    check(hint, value): returns the value as `hint` has it (a list as a tuple) or raises `ValueError`. outside: the
    outside code that may be named; other names are refused before anything is imported or read. hints: other programs'
    names for settings and files.

    Short forms: `loss: hinge` and `optimizer: SGD` for a map with this `name`; one item where a list is expected.
    """

    def __init__(
        self, check: Callable[[Any, Any], Any], outside: Container[str] = ANY, hints: Hints | None = None
    ) -> None:
        self.check = check
        self.outside = outside
        self.hints = hints or Hints()
        self.problems: list[Problem] = []
        self._known_keys: list[str] = []
        self._unknown_keys: list[_UnknownKey] = []

    def fill(self, cls: type[T], tree: Node) -> T | None:
        """The dataclass, or None where there are `problems`. Settings that are not written keep their defaults."""
        filled = self._read_record(cls, tree, "", None)
        for i, unknown in enumerate(self._unknown_keys):  # last: now every key that could be meant is known
            text = self._describe_unknown(unknown) if i < MAX_PROBLEMS else "unknown key"
            self._add_problem(unknown.place, unknown.path, text)
        return None if self.problems else filled

    def _read_record(self, cls: Any, node: Node, path: str, base: Any, choice: tuple[str, str] | None = None) -> Any:
        """An instance of `cls`; settings that are not written come from `base`.

        choice: category and name of the file whose options these are. Text alone is the value of the field that
        `cls.SHORT` names, or of `name`.
        """
        fields = {f.name: f for f in dataclasses.fields(cls)}
        short = getattr(cls, "SHORT", "name")
        if isinstance(node.value, str) and short in fields:
            node = Node(node.place, {short: node})
        if not isinstance(node.value, dict):
            return self._add_problem(node.place, path, f"must be {describe(cls)}, not {shorten(node.plain())}")
        hints = get_type_hints(cls, include_extras=True)
        known = [*(["name"] if choice else []), *fields]
        self._known_keys += [_join(path, name) for name in known]
        for key, entry in node.value.items():
            if key not in known:
                category = choice[0] if choice else None
                unknown = _UnknownKey(entry.place, _join(path, key), entry.plain(), known, category)
                self._unknown_keys.append(unknown)
        values = {}
        for name, field in fields.items():
            default = default_of(field) if base is None else getattr(base, name)
            values[name] = self._read_field(hints[name], node, _join(path, name), default, choice)
        if any(value is _INVALID for value in values.values()):
            return _INVALID
        try:
            return cls(**values)
        except (ValueError, ConfigError) as error:  # from its `__post_init__`
            return self._add_problem(node.place, path, str(error))

    def _read_field(self, hint: Any, node: Node, path: str, default: Any, choice: tuple[str, str] | None) -> Any:
        assert isinstance(node.value, dict)
        entry = node.value.get(_last(path))
        if entry is not None:
            return self._read_value(hint, entry, path, None if default is dataclasses.MISSING else default)
        if default is dataclasses.MISSING:
            owner = f" for {registry.noun(choice[0])} {choice[1]!r}" if choice else ""
            return self._add_problem(node.place, "", f"{path} is required{owner}; {_how_to_set(hint, path)}")
        if dataclasses.is_dataclass(default):  # read although nothing is written: its keys become known
            return self._read_value(hint, Node(node.place, {}), path, default)
        return default

    def _read_value(self, hint: Any, node: Node, path: str, default: Any = None) -> Any:
        category = category_of(hint)
        if category is not None:
            if get_args(hint)[0] is Choice:
                return self._read_choice(category.name, node, path, default)
            return self._read_name(category, node, path)
        if dataclasses.is_dataclass(hint):
            return self._read_record(hint, node, path, default)
        inner = [kind for kind in get_args(hint) if is_record(kind) or get_origin(kind) is dict]
        if inner and is_union(hint):
            return None if node.value is None else self._read_value(inner[0], node, path, default)
        if inner and get_origin(hint) in (tuple, list):
            return self._read_items(get_origin(hint), inner[0], node, path)
        return self._read_leaf(hint, node, path)

    def _read_items(self, kind: Any, inner: Any, node: Node, path: str) -> Any:
        if isinstance(node.value, (str, dict)):
            node = Node(node.place, [node])
        if not isinstance(node.value, list):
            return self._add_problem(node.place, path, f"must be a list, not {shorten(node.plain())}")
        items = kind(self._read_value(inner, item, _join(path, str(i))) for i, item in enumerate(node.value))
        return _INVALID if any(item is _INVALID for item in items) else items

    def _read_choice(self, category: str, node: Node, path: str, default: Choice | None) -> Any:
        entries = {"name": node} if isinstance(node.value, str) else node.value
        if not isinstance(entries, dict):
            text = f"must be {describe_choices(category)}, not {shorten(node.plain())}"
            return self._add_problem(node.place, path, text)
        name = entries.get("name") or (None if default is None else Node(node.place, default.name))
        name_path = _join(path, "name")
        if name is None:
            return self._add_problem(node.place, "", f"{name_path} is required; choose {describe_choices(category)}")
        if not isinstance(name.value, str):
            text = f"must be {describe_choices(category)}, not {shorten(name.plain())}"
            return self._add_problem(node.place, name_path, text)
        try:
            full_name = self._resolve_name(name)
            if "." in full_name and self.outside is NAMES_ONLY:
                return Choice(full_name, {key: item.plain() for key, item in entries.items() if key != "name"})
            kind = registry.options(category, full_name)
        except ConfigError as error:
            return self._add_problem(name.place, name_path, self._describe_bad_name(category, name, path, error))
        base = default.options if default is not None and default.name == full_name else None
        options = self._read_record(kind, Node(node.place, entries), path, base, (category, full_name))
        return _INVALID if options is _INVALID else Choice(full_name, options)

    def _read_name(self, category: Category, node: Node, path: str) -> Any:
        if not isinstance(node.value, str):
            text = f"must be {describe_choices(category.name, category.also)}, not {shorten(node.plain())}"
            return self._add_problem(node.place, path, text)
        if node.value in category.also:
            return node.value
        try:
            name = self._resolve_name(node)
            if "." not in name or self.outside is not NAMES_ONLY:
                registry.find_source(category.name, name, category.also)
        except ConfigError as error:
            return self._add_problem(node.place, path, str(error))
        return name

    def _describe_bad_name(self, category: str, name: Node, path: str, error: ConfigError) -> str:
        assert isinstance(name.value, str)
        key = _join(path, "name")
        name_here = self.hints.name(category, name.value)
        if name_here:
            return f"{name.value!r} is called {name_here} in paragan; use {key}={name_here}"
        file = f"{name.value.replace('.', '/')}.py"
        text = str(error)
        is_missing = text.startswith((f"unknown {registry.noun(category)} {name.value!r}", "cannot import "))
        if is_missing and os.path.isfile(outside_file.absolute_path(file, name.place.source)):
            return f"{text.partition(';')[0].partition(':')[0]}; to use the file {file}, pass {key}={file}"
        return text

    def _resolve_name(self, node: Node) -> str:
        """The name; of a file its absolute path.

        Raises `ConfigError` for outside code that a file names and that is not in `outside`; names from the command
        line are trusted.
        """
        name = node.value
        assert isinstance(name, str)
        if outside_file.is_file_name(name):
            name = outside_file.absolute_path(name, node.place.source)
        if "." in name and node.place != COMMAND_LINE and name not in self.outside:
            raise ConfigError(
                f"{node.value!r} is code outside paragan, which this file may not import; if you trust it, "
                "pass --trust (in Python: trust=True)"
            )
        return name

    def _read_leaf(self, hint: Any, node: Node, path: str) -> Any:
        value = node.plain()
        try:
            checked = self.check(hint, value)
        except ValueError:
            words = (word for word in literal_words(hint) if isinstance(word, str))
            suggestion = did_you_mean(closest_name(value, words) if isinstance(value, str) else None)
            text = f"must be {describe(hint)}, not {shorten(value)}{suggestion}"
            return self._add_problem(node.place, path, text)
        if isinstance(checked, dict) and isinstance(node.value, dict):
            return LocatedDict(checked, path, {key: entry.place for key, entry in node.value.items()})
        return os.path.expanduser(checked) if isinstance(checked, str) and is_path(hint) else checked

    def _describe_unknown(self, unknown: _UnknownKey) -> str:
        """The message for an unknown key, with a suggestion: another file's setting, a sibling, or the same key in
        another section.
        """
        above, _, key = unknown.path.rpartition(".")
        if (hint := self.hints.setting(unknown.path, unknown.value)) is not None:
            return f"unknown key; {hint}"
        if unknown.category is not None and (owners := _files_with_option(unknown.category, key)):
            name = owners[0] if len(owners) == 1 else "NAME"
            return f"unknown key; it belongs to {', '.join(owners)}: pass {_join(above, 'name')}={name} too"
        if (sibling := closest_name(key, unknown.siblings)) is not None:
            suggestion: str | None = _join(above, sibling)
        elif "arguments" in unknown.siblings:  # of the optimiser, as its class names them
            suggestion = _join(above, f"arguments.{key}")
        else:
            tail = closest_name(key, map(_last, self._known_keys), _SIMILARITY)
            same_tail = (known for known in self._known_keys if _last(known) == tail)
            suggestion = closest_name(unknown.path, same_tail, least=0)
        choices = f"choose one of {', '.join(unknown.siblings)}" if unknown.siblings else "there are none here"
        return f"unknown key; {choices}{did_you_mean(suggestion)}"

    def _add_problem(self, place: SourceLocation, path: str, text: str) -> Any:
        self.problems.append(Problem(place, path, text))
        return _INVALID


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _how_to_set(hint: Any, path: str) -> str:
    category = category_of(hint)
    if category is not None:
        return f"choose {describe_choices(category.name, category.also)}"
    return f"pass {path}=VALUE, {describe(hint)}"


def _files_with_option(category: str, key: str) -> list[str]:
    """The files of a category that have this option."""
    options = {name: dataclasses.fields(registry.options(category, name)) for name in registry.names(category)}
    return [name for name, fields in options.items() if key in {field.name for field in fields}]
