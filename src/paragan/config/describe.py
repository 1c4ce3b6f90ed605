"""The type of an option in words, for messages."""

from __future__ import annotations

import dataclasses
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from paragan.core.option_types import Range

_PLAIN: dict[Any, str] = {
    **{int: "an integer", float: "a number", bool: "true or false", str: "text"},
    **{type(None): "null", None: "null", Any: "any value", dict: "a map", list: "a list", tuple: "a list"},
}


def is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def describe(hint: Any) -> str:
    """`int | None` is "an integer or null"; ranges and the words of a `Literal` are named."""
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
