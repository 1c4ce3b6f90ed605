"""Option dataclasses from a tree of settings: every problem is noted and the reading goes on.

The tree says what is written, the dataclasses what may be; a value at a leaf is checked by a function that is passed
in, so that this floor needs no validation library.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from paragan.config.describe import describe, is_union
from paragan.config.hints import Hints
from paragan.core import outside_file, registry
from paragan.core.errors import ConfigError
from paragan.core.option_types import Category, Choice, IsPath
from paragan.core.registry import closest_name, did_you_mean
from paragan.core.settings_tree import COMMAND_LINE, MOST_SHOWN, Node, Place, Problem, Written, brief

T = TypeVar("T")
_BAD: Any = object()  # stands for a value that has a problem


class _Any:
    def __contains__(self, name: object) -> bool:
        return True


ANY = _Any()  # every name is in it
NAMED = _Any()  # every name may stand there and stays a name: nothing is imported or read, so options stay as written
_ALIKE = 0.75  # of a key in another section; below, suggestions are nonsense


@dataclass(frozen=True)
class _Unknown:
    """An unknown key, its known siblings, and the shelf of the file whose options these are."""

    place: Place
    path: str
    value: Any
    siblings: list[str]
    folder: str | None


class ConfigReader:
    """check(hint, value) returns the value as `hint` has it (a list as a tuple) or raises `ValueError`.

    outside: the dotted paths that may be named; others are refused before anything is imported or read. hints: other
    programs' names for settings and files.

    Short forms: `loss: hinge` and `optimizer: SGD` for a map with this `name`; one item where a list is expected.
    """

    def __init__(
        self, check: Callable[[Any, Any], Any], outside: Container[str] = ANY, hints: Hints | None = None
    ) -> None:
        self.check, self.outside, self.hints = check, outside, hints or Hints()
        self.problems: list[Problem] = []
        self._known: list[str] = []
        self._unknown: list[_Unknown] = []

    def fill(self, cls: type[T], tree: Node) -> T | None:
        """The dataclass, or None where `problems` has grown. What is not written stays at its default."""
        filled = self._record(cls, tree, "", None)
        for i, unknown in enumerate(self._unknown):  # last: now every key that could be meant is known
            text = self._stranger(unknown) if i < MOST_SHOWN else "found an unknown key"
            self._note(unknown.place, unknown.path, text)
        return None if self.problems else filled

    def _record(self, cls: Any, node: Node, path: str, base: Any, folder: str | None = None) -> Any:
        """An instance of `cls`; what is not written comes from `base`. folder: the shelf that the options belong to.

        Text alone is the value of the field that `cls.SHORT` names, or of `name`.
        """
        fields = {f.name: f for f in dataclasses.fields(cls)}
        short = getattr(cls, "SHORT", "name")
        if isinstance(node.value, str) and short in fields:
            node = Node(node.place, {short: node})
        if not isinstance(node.value, dict):
            return self._note(node.place, path, f"found {brief(node.plain())}, expected {describe(cls)}")
        hints = get_type_hints(cls, include_extras=True)
        known = [*(["name"] if folder else []), *fields]
        self._known += [_join(path, name) for name in known]
        for key, entry in node.value.items():
            if key not in known:
                self._unknown.append(_Unknown(entry.place, _join(path, key), entry.plain(), known, folder))
        values = {}
        for name, field in fields.items():
            default = _default(field) if base is None else getattr(base, name)
            values[name] = self._field(hints[name], node, _join(path, name), default)
        if any(value is _BAD for value in values.values()):
            return _BAD
        try:
            return cls(**values)
        except (ValueError, ConfigError) as error:  # from its `__post_init__`
            return self._note(node.place, path, str(error))

    def _field(self, hint: Any, node: Node, path: str, default: Any) -> Any:
        assert isinstance(node.value, dict)
        entry = node.value.get(_last(path))
        if entry is not None:
            return self._value(hint, entry, path, None if default is dataclasses.MISSING else default)
        if default is dataclasses.MISSING:
            return self._note(node.place, path, f"found nothing, expected {_expected(hint)}")
        if dataclasses.is_dataclass(default):  # read all the same: its keys become known
            return self._value(hint, Node(node.place, {}), path, default)
        return default

    def _value(self, hint: Any, node: Node, path: str, default: Any = None) -> Any:
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        on = next((mark for mark in marks if isinstance(mark, Category)), None)
        if on is not None:
            is_chosen = get_args(hint)[0] is Choice
            return self._chosen(on.name, node, path, default) if is_chosen else self._name(on, node, path)
        if dataclasses.is_dataclass(hint):
            return self._record(hint, node, path, default)
        inner = [kind for kind in get_args(hint) if _is_record(kind)]
        if inner and is_union(hint):
            return None if node.value is None else self._value(inner[0], node, path, default)
        if inner and get_origin(hint) in (tuple, list):
            return self._items(get_origin(hint), inner[0], node, path)
        return self._leaf(hint, node, path)

    def _items(self, kind: Any, inner: Any, node: Node, path: str) -> Any:
        if isinstance(node.value, (str, dict)):
            node = Node(node.place, [node])
        if not isinstance(node.value, list):
            return self._note(node.place, path, f"found {brief(node.plain())}, expected a list")
        items = kind(self._value(inner, item, _join(path, str(i))) for i, item in enumerate(node.value))
        return _BAD if any(item is _BAD for item in items) else items

    def _chosen(self, folder: str, node: Node, path: str, default: Choice | None) -> Any:
        entries = {"name": node} if isinstance(node.value, str) else node.value
        if not isinstance(entries, dict):
            return self._note(
                node.place, path, f"found {brief(node.plain())}, expected {registry.describe_choices(folder)}"
            )
        name = entries.get("name") or (None if default is None else Node(node.place, default.name))
        if name is None or not isinstance(name.value, str):
            found = "no name" if name is None else brief(name.plain())
            return self._note(
                node.place, _join(path, "name"), f"found {found}, expected {registry.describe_choices(folder)}"
            )
        try:
            found = self._known_name(name)
            if "." in found and self.outside is NAMED:
                return Choice(found, {key: item.plain() for key, item in entries.items() if key != "name"})
            kind = registry.options(folder, found)
        except ConfigError as error:
            return self._note(name.place, _join(path, "name"), self._misnamed(folder, name, path, error))
        base = default.options if default is not None and default.name == found else None
        options = self._record(kind, Node(node.place, entries), path, base, folder)
        return _BAD if options is _BAD else Choice(found, options)

    def _name(self, on: Category, node: Node, path: str) -> Any:
        if not isinstance(node.value, str):
            expected = registry.describe_choices(on.name, on.also)
            return self._note(node.place, path, f"found {brief(node.plain())}, expected {expected}")
        try:
            if node.value not in on.also:
                name = self._known_name(node)
                if "." not in name or self.outside is not NAMED:
                    registry.find_source(on.name, name, on.also)
                return name
        except ConfigError as error:
            return self._note(node.place, path, str(error))
        return node.value

    def _misnamed(self, folder: str, name: Node, path: str, error: ConfigError) -> str:
        assert isinstance(name.value, str)
        here = self.hints.name(folder, name.value)
        if here:
            return f"{name.value!r} is called {here} here; give {_join(path, 'name')}={here}"
        file = f"{name.value.replace('.', '/')}.py"
        missing = str(error).startswith(f"found {name.value!r}, expected")
        if missing and os.path.isfile(outside_file.absolute_path(file, name.place.source)):
            unknown = f"cannot import {name.value!r}" if "." in name.value else f"no {folder} file {name.value!r}"
            return f"{unknown}; to use the file {file}, give {_join(path, 'name')}={file}"
        return str(error)

    def _known_name(self, name: Node) -> str:
        """The name, of a file its whole path. `ConfigError` for outside code that a file names; what the user has
        typed is trusted.
        """
        known = name.value
        assert isinstance(known, str)
        if outside_file.is_file_name(known):
            known = outside_file.absolute_path(known, name.place.source)
        if "." in known and name.place != COMMAND_LINE and known not in self.outside:
            raise ConfigError(
                f"found {name.value!r}, code outside paragan; a loaded file may not name any: if you trust this one, "
                "give --trust (in Python: trust=True)"
            )
        return known

    def _leaf(self, hint: Any, node: Node, path: str) -> Any:
        value = node.plain()
        try:
            checked = self.check(hint, value)
            if isinstance(checked, dict) and isinstance(node.value, dict):
                return Written(checked, path, {key: entry.place for key, entry in node.value.items()})
            return os.path.expanduser(checked) if isinstance(checked, str) and _is_path(hint) else checked
        except ValueError:
            words = (word for word in _words(hint) if isinstance(word, str))
            meant = closest_name(value, words) if isinstance(value, str) else None
            return self._note(node.place, path, f"found {brief(value)}, expected {describe(hint)}{did_you_mean(meant)}")

    def _stranger(self, unknown: _Unknown) -> str:
        """What to say of an unknown key; meant may be a setting of another file, a sibling, or the same word in
        another section."""
        path, siblings = unknown.path, unknown.siblings
        above, _, key = path.rpartition(".")
        if (hint := self.hints.setting(path, unknown.value)) is not None:
            return f"unknown setting; {hint}"
        if unknown.folder is not None and (owners := _with_option(unknown.folder, key)):
            has, name = ("has", owners[0]) if len(owners) == 1 else ("have", "NAME")
            return f"unknown setting; {', '.join(owners)} {has} it: give {_join(above, 'name')}={name} too"
        if (sibling := closest_name(key, siblings)) is not None:
            meant: str | None = _join(above, sibling)
        elif "arguments" in siblings:  # of the optimiser, as its class names them
            meant = _join(above, f"arguments.{key}")
        else:
            tail = closest_name(key, map(_last, self._known), _ALIKE)
            meant = closest_name(path, (known for known in self._known if _last(known) == tail), least=0)
        listed = f"one of {', '.join(siblings)}" if siblings else "none here"
        return f"found an unknown key, expected {listed}{did_you_mean(meant)}"

    def _note(self, place: Place, path: str, text: str) -> Any:
        self.problems.append(Problem(place, path, text))
        return _BAD


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _expected(hint: Any) -> str:
    on = next((mark for mark in get_args(hint)[1:] if isinstance(mark, Category)), None)
    return describe(hint) if on is None else registry.describe_choices(on.name, on.also)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _with_option(folder: str, key: str) -> list[str]:
    """The files of a shelf that have this option."""
    options = {name: dataclasses.fields(registry.options(folder, name)) for name in registry.names(folder)}
    return [name for name, fields in options.items() if key in {field.name for field in fields}]


def _is_path(hint: Any) -> bool:
    return any(isinstance(part, IsPath) or _is_path(part) for part in get_args(hint))


def _is_record(hint: Any) -> bool:
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return dataclasses.is_dataclass(kind)


def _words(hint: Any) -> tuple[Any, ...]:
    """The values of every `Literal` in a type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(word for part in get_args(hint) for word in _words(part))
