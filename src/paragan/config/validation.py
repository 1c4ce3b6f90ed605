"""Validation of a config by pydantic; an error becomes a line with its place and a hint."""

import dataclasses
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from paragan.config.field_types import Field, describe, fields_of, literal_words
from paragan.config.hints import list_hint, setting_hint
from paragan.config.removed_settings import replacement_of, replacement_of_option
from paragan.config.sections import ANY, Section, Sections, dotted, removed_problem
from paragan.core import registry
from paragan.core.option_types import Choice
from paragan.core.registry import closest_name, describe_choices, did_you_mean
from paragan.core.settings_tree import (
    MAX_PROBLEMS,
    LocatedDict,
    Node,
    Problem,
    ProblemsError,
    SourceLocation,
    entries_of,
    node_at,
    shorten,
)

T = TypeVar("T")
_SIMILARITY = 0.75  # least, for suggestions from another section
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def validate_config(kind: type[T], tree: Node, outside: Container[str] = ANY, problems: Iterable[Problem] = ()) -> T:
    """Return the options class with the values of a tree.

    Settings that are not written have their defaults. Short forms are replaced in the tree: `loss: hinge` for a map
    with this `name`, one item where a list is expected. outside: the outside code that may be named; other names are
    refused before anything is imported or read. Raises one `ConfigError` with all problems found, and the given ones.
    """
    sections = Sections(kind, tree, outside)
    kinds = {(section.category, section.name): section.kind for section in sections.values()}

    def as_choice(category: str, entries: Any) -> Choice:  # called by pydantic for each field of a `Choice`
        name = entries.get("name") if isinstance(entries, dict) else None
        if not isinstance(name, str) or (category, name) not in kinds:
            raise ValueError("this choice is a problem of the sections")
        options = {key: value for key, value in entries.items() if key != "name"}
        chosen = kinds[category, name]
        return Choice(name, options if chosen is None else _check(chosen, options, as_choice))

    filled = None
    try:
        filled = _check(kind, tree.plain(), as_choice)
    except ValidationError as error:
        sections.problems += _describe_errors(error, sections)
    if all_problems := [*problems, *sections.problems]:
        raise ProblemsError(all_problems)
    assert isinstance(filled, kind), "an error of pydantic is a problem"
    _add_places(filled, tree, "")
    return filled


def _check(kind: type, values: Any, as_choice: Callable[[str, Any], Choice]) -> Any:
    """Validate as JSON, where a strict check accepts a list for a tuple and 1 for 1.0."""
    return _adapter(kind).validate_json(json.dumps(values), context=as_choice)


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    # The classes of its fields inherit it.
    kind.__pydantic_config__ = _STRICT  # type: ignore[attr-defined]
    return TypeAdapter(kind)


def _add_places(value: Any, node: Node, path: str) -> Any:
    """Return the value with the location of every entry in maps with free keys."""
    if isinstance(value, dict) and isinstance(node.value, dict):
        entries = {key: _add_places(item, node.value[key], dotted(path, key)) for key, item in value.items()}
        return LocatedDict(entries, path, {key: entry.place for key, entry in node.value.items()})
    if isinstance(value, tuple) and isinstance(node.value, list):
        items = enumerate(value)
        return tuple(_add_places(item, node.value[i], dotted(path, str(i))) for i, item in items)
    options = value.options if isinstance(value, Choice) else value
    if dataclasses.is_dataclass(options):
        kind: type = type(options)
        for key in entries_of(node).keys() & fields_of(kind).keys():
            located = _add_places(getattr(options, key), entries_of(node)[key], dotted(path, key))
            object.__setattr__(options, key, located)  # frozen, but not yet in use
    return value


def _describe_errors(error: ValidationError, sections: Sections) -> list[Problem]:
    """Return a problem per setting; pydantic has one error for each member of a union.

    written              pydantic: type, loc                         problem
    g: {max_norm: x}     float_type, g max_norm                      wrong value
    g: {foo: 1}          unexpected_keyword_argument, g foo          unknown key
    g: 3                 dataclass_type, g                           must be a map
    grid: {shape: x}     value_error, grid                           what its `__post_init__` says
    weight: {start: 1}   float_type, weight constrained-float        none: the map is meant, as it is written
                         missing, weight WeightSchedule final        required
    """
    problems: dict[tuple[str, str], Problem | None] = {}  # None: `sections` has described it
    unknown = []
    for detail in error.errors(include_url=False, include_input=False):
        section, keys = _find(detail["loc"], sections)
        is_unknown = detail["type"] == "unexpected_keyword_argument"
        if keys and keys[0] == getattr(section.kind, "__name__", ""):
            keys = keys[1:]  # `WeightSchedule`, the member of a union
        elif keys and keys[0] not in section.fields and not is_unknown:
            continue  # `constrained-float`, the other member
        key = str(keys[0]) if keys else ""
        if is_unknown and len(keys) == 1:
            unknown.append((section, key))
        elif (section.path, key) in problems:
            continue  # `weight: x` has an error for each member
        elif detail["type"] == "missing" and len(keys) == 1:
            problems[section.path, key] = _describe_missing(section, key)
        elif keys:
            problems[section.path, key] = _describe_value(section, key, keys[1:])
        else:
            raised = detail.get("ctx", {}).get("error")  # by `__post_init__` of the options
            text = _must_be_map(section) if raised is None else str(raised)
            problems[section.path, key] = Problem(_place_of(text, section.node), section.path, text)
    known = [problem for problem in problems.values() if problem is not None]
    return [*known, *_describe_unknown(unknown, sections)]


def _must_be_map(section: Section) -> str:
    value = section.node.plain()
    hint = setting_hint(section.path, value)
    text = f"must be a map of {', '.join(section.keys) or 'nothing'}, not {shorten(value)}"
    return text if hint is None else f"{text}; {hint}"


def _place_of(text: str, node: Node) -> SourceLocation:
    """Return the location of the setting with which a message begins, else that of its section."""
    named = node_at(node, re.split(r"[\s=:]", text, maxsplit=1)[0])
    return node.place if named is None else named.place


def _find(loc: tuple[int | str, ...], sections: Sections) -> tuple[Section, tuple[int | str, ...]]:
    """Return the innermost section of an error, and the rest of its location."""
    section = sections[""]
    keys = loc
    path = ""
    for i, part in enumerate(loc):
        path = dotted(path, str(part))
        if path in sections:
            section = sections[path]
            keys = loc[i + 1 :]
    return section, keys


def _describe_missing(section: Section, key: str) -> Problem:
    path = dotted(section.path, key)
    field = section.fields[key]
    owner = f" for {registry.noun(section.category)} {section.name!r}" if section.category else ""
    cure = f"pass {path}=VALUE, {describe(field.hint)}"
    if field.category is not None:
        cure = f"choose {describe_choices(field.category.name, field.category.also)}"
    return Problem(section.node.place, "", f"{path} is required{owner}; {cure}")


def _describe_value(section: Section, key: str, rest: tuple[int | str, ...]) -> Problem | None:
    """Return the problem of a value or item; None for names and choices, of `sections`. rest: place inside."""
    field = section.fields[key]
    node = entries_of(section.node)[key]
    path = dotted(section.path, key)
    if field.inner is None and field.is_list and isinstance(node.value, list) and get_args(field.hint)[-1] is Ellipsis:
        item = node.value[int(rest[0])]  # of `freeze: [embed, 3]`
        return Problem(node.place, f"{path}.{rest[0]}", _must_be(get_args(field.hint)[0], item))
    is_no_map = field.is_map and not isinstance(node.value, dict)  # `players: 3`
    if field.inner is None or field.is_value_or_map or is_no_map:  # `lr: abc`, `weight: x`
        if (instead := replacement_of(f"{path}={node.value}")) is not None:
            return removed_problem(path, node, instead, str(node.value))
        return Problem(node.place, path, _must_be(field.hint, node) + _instead_of_null(field, node))
    if isinstance(node.value, list) or not field.is_list:  # `loss: 3`, `penalties: [3]`
        return None
    return Problem(node.place, path, f"must be a list, not {shorten(node.plain())}{_instead_of_null(field, node)}")


def _instead_of_null(field: Field, node: Node) -> str:
    """Return what to write for no list or map, for a message; empty for other values and types."""
    if node.value is not None or not (field.is_list or isinstance(field.default, dict)):
        return ""
    empty = "[]" if field.is_list else "{}"
    return "; leave it out for the default" if field.default else f"; leave it out, or write {empty} for none"


def _must_be(hint: Any, node: Node) -> str:
    words = [word for word in literal_words(hint) if isinstance(word, str)]
    nearest = closest_name(node.value, words) if isinstance(node.value, str) else None
    as_list = list_hint(node.value) if describe(hint).startswith("a list") else ""
    return f"must be {describe(hint)}, not {shorten(node.plain())}{did_you_mean(nearest)}{as_list}"


def _describe_unknown(unknown: list[tuple[Section, str]], sections: Sections) -> Iterator[Problem]:
    known: list[str] = []
    for section in sections.values():
        known += [dotted(section.path, key) for key in section.keys]
    for i, (section, key) in enumerate(unknown):
        node = entries_of(section.node)[key]
        path = dotted(section.path, key)
        if (instead := replacement_of_option(path, section.category, section.name, key)) is not None:
            yield removed_problem(path, node, instead)
        else:
            text = _suggest(section, key, node.plain(), known) if i < MAX_PROBLEMS else "unknown key"
            yield Problem(node.place, path, text)


def _suggest(section: Section, key: str, value: Any, known: list[str]) -> str:
    """Return the message for an unknown key, which another trainer or file has, or which is similar to a known one."""
    path = dotted(section.path, key)
    if (hint := setting_hint(path, value)) is not None:
        if "use data.path=" in hint and "data.path" not in known:  # the recipe's data reads no files
            hint = setting_hint("data.path", value)
        return f"unknown key; {hint}"
    names = registry.names(section.category) if section.category and "." not in section.name else []  # no own code
    if owners := [name for name in names if key in fields_of(registry.options(section.category, name))]:
        name = owners[0] if len(owners) == 1 else "NAME"
        fix = f"leave it out, or pass {dotted(section.path, 'name')}={name} too"
        return f"unknown key for {section.name}; it belongs to {', '.join(owners)}: {fix}"
    suggestion: str | None
    if (sibling := closest_name(key, section.keys)) is not None:
        suggestion = dotted(section.path, sibling)
    elif "arguments" in section.keys:  # arguments of an optimiser
        suggestion = dotted(section.path, f"arguments.{key}")
    else:
        tail = closest_name(key, map(_last, known), _SIMILARITY)
        suggestion = closest_name(path, [other for other in known if _last(other) == tail], min_similarity=0)
    choices = f"choose one of {', '.join(section.keys)}" if section.keys else "there are none here"
    return f"unknown key; {choices}{did_you_mean(suggestion)}"


def _last(path: str) -> str:
    return path.rpartition(".")[2]
