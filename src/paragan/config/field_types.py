"""Types of option fields: in words, for messages, and their marks, defaults and nested classes."""

from __future__ import annotations

import dataclasses
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from paragan.core.option_types import Category, IsPath, Range

_PLAIN: dict[Any, str] = {
    **{int: "an integer", float: "a number", bool: "true or false", str: "text"},
    **{type(None): "null", None: "null", Any: "any value", dict: "a map", list: "a list", tuple: "a list"},
}


def is_union(hint: Any) -> bool:
    """Whether a type is `A | B` or `Optional[A]`."""
    return get_origin(hint) in (Union, types.UnionType)


def is_path(hint: Any) -> bool:
    """Whether a type is, or contains, text that is marked as a path."""
    return any(isinstance(part, IsPath) or is_path(part) for part in get_args(hint))


def is_record(hint: Any) -> bool:
    """Whether a type is an options class, marked or not."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return dataclasses.is_dataclass(kind)


def category_of(hint: Any) -> Category | None:
    """The category that a type's names are chosen from; None for other types."""
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Category)), None)


def literal_words(hint: Any) -> tuple[Any, ...]:
    """The values of every `Literal` in a type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(word for part in get_args(hint) for word in literal_words(part))


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default of a field; `dataclasses.MISSING` where it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def describe(hint: Any) -> str:
    """A type in words: `int | None` is "an integer or null"; ranges and the values of a `Literal` are listed."""
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return f"a map of {', '.join(field.name for field in dataclasses.fields(hint)) or 'nothing'}"
    if origin is Annotated:
        return " ".join([describe(arguments[0]), *(str(mark) for mark in arguments[1:] if isinstance(mark, Range))])
    if origin is Literal:
        words = ", ".join(str(word).lower() if isinstance(word, bool) else str(word) for word in arguments)
        return f"one of {words}" if len(arguments) > 1 else words
    if is_union(hint):
        return " or ".join(map(describe, arguments))
    if origin in (list, tuple):
        return _sequence(list(arguments))
    return _PLAIN.get(origin or hint, str(hint))


def _sequence(items: list[Any]) -> str:
    length = "" if len(items) == 1 or items[-1] is Ellipsis else f" of {len(items)}"
    kinds = list(dict.fromkeys(describe(item) for item in items if item is not Ellipsis))
    return f"a list{length}, each {kinds[0]}" if len(kinds) == 1 else f"a list of {', '.join(kinds)}"
