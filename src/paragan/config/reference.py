"""The settings reference: meaning, type, range and default of every setting of a run, and of all files it may name.

Meanings are the string literals below the fields of the options (`core.field_docs`). Nothing here imports torch.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from paragan.config.config_reader import NAMES_ONLY
from paragan.config.field_types import category_of, default_of, describe, is_union
from paragan.config.run_config import RunConfig, load_with_places
from paragan.core import registry
from paragan.core.field_docs import meanings
from paragan.core.option_types import Choice
from paragan.core.settings_tree import Node


@dataclass(frozen=True)
class Setting:
    """One dotted key.

    kind: type and range in words. default, value: as JSON has them; no default where `required`. place: the file and
    line, or the command line, where a run's value was written; empty where it is the default.
    """

    key: str
    meaning: str
    kind: str
    default: Any = None
    required: bool = False
    value: Any = None
    place: str = ""


def of_run(recipe: str, overrides: Sequence[str]) -> list[Setting]:
    """The settings of one run, in the order of its config. Outside code is not imported (`NAMES_ONLY`)."""
    config, tree = load_with_places(recipe, overrides, NAMES_ONLY)
    return list(_record_settings(RunConfig, config, tree, ""))


def of_options(kind: type, path: str = "") -> Iterator[Setting]:
    """The settings of an options class with their defaults. Nested classes follow; chosen files are named only."""
    hints = get_type_hints(kind, include_extras=True)
    texts = meanings(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        key = f"{path}{field.name}"
        default = default_of(field)
        required = default is dataclasses.MISSING
        nested = _nested(hint)
        if nested is None or _repeats(hint) or _is_optional(hint):
            yield Setting(key, texts.get(field.name, ""), _kind(hint), None if required else _plain(default), required)
        if nested is not None:
            yield from of_options(nested, f"{key}.{'N.' if _repeats(hint) else ''}")


def _record_settings(kind: type, record: Any, node: Node | None, path: str) -> Iterator[Setting]:
    """The settings of one options class. record: an instance of `kind`. node: what was written for it."""
    hints = get_type_hints(kind, include_extras=True)
    texts = meanings(kind)
    for field in dataclasses.fields(kind):
        setting = Setting(f"{path}{field.name}", texts.get(field.name, ""), _kind(hints[field.name]))
        value = getattr(record, field.name)
        yield from _expand(setting, value, default_of(field), _entry(node, field.name))


def _expand(setting: Setting, value: Any, default: Any, node: Node | None) -> Iterator[Setting]:
    """The setting itself with its value, or those of the options inside it."""
    if isinstance(value, Choice):
        yield from _choice_settings(setting, value, default, node)
    elif dataclasses.is_dataclass(value):
        yield from _record_settings(type(value), value, node, f"{setting.key}.")
    elif isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value)):
        for number, item in enumerate(value):
            kind = setting.kind.removeprefix("a list, each ")
            one = dataclasses.replace(setting, key=f"{setting.key}.{number}", kind=kind)
            before = default[number] if isinstance(default, tuple) and number < len(default) else dataclasses.MISSING
            yield from _expand(one, item, before, _entry(node, str(number)))
    else:
        yield _with_value(setting, value, default, node)


def _choice_settings(setting: Setting, choice: Choice, default: Any, node: Node | None) -> Iterator[Setting]:
    name = Setting(f"{setting.key}.name", setting.meaning, setting.kind)
    yield _with_value(name, choice.name, getattr(default, "name", default), _entry(node, "name") or node)
    if isinstance(choice.options, Mapping):  # outside code, which is not read
        for key, value in choice.options.items():
            option = Setting(f"{setting.key}.{key}", f"An option of {choice.name}.", "any value")
            yield _with_value(option, value, dataclasses.MISSING, _entry(node, key))
    else:
        yield from _record_settings(type(choice.options), choice.options, node, f"{setting.key}.")


def _with_value(setting: Setting, value: Any, default: Any, node: Node | None) -> Setting:
    required = default is dataclasses.MISSING
    place = "" if node is None else str(node.place)
    plain_default = None if required else _plain(default)
    return dataclasses.replace(setting, value=_plain(value), default=plain_default, required=required, place=place)


def summary(category: str, name: str) -> str:
    """The first paragraph of the docstring of a category's file."""
    text = ast.get_docstring(ast.parse(registry.find_source(category, name).read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _entry(node: Node | None, key: str) -> Node | None:
    if node is None:
        return None
    if isinstance(node.value, list):
        return node.value[int(key)] if key.isdecimal() and int(key) < len(node.value) else None
    return node.value.get(key) if isinstance(node.value, dict) else None


def _nested(hint: Any) -> type | None:
    """The options class in a type, alone, optional or repeated; None where there is none, or a file is chosen."""
    if get_origin(hint) is Annotated:
        return None
    if dataclasses.is_dataclass(hint):
        return hint  # type: ignore[return-value]
    found = [part for part in get_args(hint) if get_origin(part) is not Annotated and dataclasses.is_dataclass(part)]
    return found[0] if found else None  # type: ignore[return-value]


def _is_optional(hint: Any) -> bool:
    return is_union(hint) and type(None) in get_args(hint)


def _repeats(hint: Any) -> bool:
    return get_origin(hint) in (tuple, list)


def _kind(hint: Any) -> str:
    """The type in words; for a name, the category it is chosen from."""
    category = category_of(hint)
    if category is not None:
        return f"a name of {category.name}, or the dotted path of a module"
    parts = get_args(hint)
    if _repeats(hint) and any(get_origin(part) is Annotated or dataclasses.is_dataclass(part) for part in parts):
        return f"a list, each {_kind(parts[0])}"
    if is_union(hint):
        return " or ".join(map(_kind, parts))
    return "a map" if dataclasses.is_dataclass(hint) else describe(hint)


def _plain(value: Any) -> Any:
    if isinstance(value, Choice):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
