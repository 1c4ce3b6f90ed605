"""The settings reference: meaning, type, range and default of every setting, without torch.

The meaning of a setting is the string literal below its field in the source.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from paragan.config.field_types import describe, fields_of
from paragan.config.recipe import read_with_places
from paragan.config.sections import NAMES_ONLY
from paragan.core.option_types import Choice
from paragan.core.settings_tree import Node, node_at


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting by its dotted key.

    kind: type and range in words. default, value: as in JSON; no default if `required`. place: the
    file and line, or the command line, where a run's value was written; empty for the default.
    """

    key: str
    meaning: str
    kind: str
    default: Any = None
    required: bool = False
    value: Any = None
    place: str = ""


def of_run(recipe: str, overrides: Sequence[str]) -> list[Setting]:
    """Return the settings of one run, in the order of its config; outside code is not imported."""
    config, tree = read_with_places(recipe, overrides, NAMES_ONLY)
    return list(_settings(config, tree, ""))


@cache
def meanings(kind: type) -> dict[str, str]:
    """Return field -> meaning of an options class, in one line; fields without one are left out."""
    meanings: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if dataclasses.is_dataclass(cls):
            meanings |= _written(cls)
    return meanings


def _written(kind: type) -> dict[str, str]:
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except OSError:  # created at run time
        return {}
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for field, below in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (text := _text(below)):
            texts[field.target.id] = " ".join(text.split())
    return texts


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""


def _settings(options: Any, tree: Node, path: str) -> Iterator[Setting]:
    """Yield the settings of the options below a dotted key. tree: as written for the whole run."""
    kind: type = type(options)
    for field in fields_of(kind).values():
        meaning = meanings(kind).get(field.name, "")
        setting = Setting(key=f"{path}{field.name}", meaning=meaning, kind=describe(field.hint))
        yield from _expand(setting, getattr(options, field.name), field.default, tree)


def _expand(setting: Setting, value: Any, default: Any, tree: Node) -> Iterator[Setting]:
    """Yield the setting with its value, or those of the options inside it."""
    if isinstance(value, Choice):
        name = dataclasses.replace(setting, key=f"{setting.key}.name")
        yield _with_value(name, value.name, getattr(default, "name", default), tree)
        if dataclasses.is_dataclass(value.options):
            yield from _settings(value.options, tree, f"{setting.key}.")
        else:  # outside code, which is not read
            for key, option in value.options.items():
                unread = Setting(key=f"{setting.key}.{key}", meaning=f"An option of {value.name}.", kind="any value")
                yield _with_value(unread, option, dataclasses.MISSING, tree)
    elif dataclasses.is_dataclass(value):
        yield from _settings(value, tree, f"{setting.key}.")
    elif isinstance(value, dict) and any(map(dataclasses.is_dataclass, value.values())):
        for name, item in value.items():
            yield from _settings(item, tree, f"{setting.key}.{name}.")
    elif isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value)):
        kind = setting.kind.removeprefix("a list, each ")
        for number, item in enumerate(value):
            part = dataclasses.replace(setting, key=f"{setting.key}.{number}", kind=kind)
            is_known = isinstance(default, tuple) and number < len(default)
            before = default[number] if is_known else dataclasses.MISSING
            yield from _expand(part, item, before, tree)
    else:
        yield _with_value(setting, value, default, tree)


def _with_value(setting: Setting, value: Any, default: Any, tree: Node) -> Setting:
    node = node_at(tree, setting.key)
    place = "" if node is None else str(node.place)
    return dataclasses.replace(setting, value=_plain(value), place=place, **default_of(default))


def default_of(default: Any) -> dict[str, Any]:
    """Return the fields of a `Setting` for the default of a field."""
    if default is dataclasses.MISSING:
        return {"required": True}
    return {"default": _plain(default)}


def _plain(value: Any) -> Any:
    if isinstance(value, Choice):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
