"""Fields of options classes: types, descriptions of types, and defaults."""

import dataclasses
import types
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from paragan.core.option_types import Category, Interval, IsImageSize, IsPath

_PLAIN: dict[Any, str] = {
    **{int: "an integer", float: "a number", bool: "true or false", str: "text"},
    **{type(None): "null", None: "null", Any: "any value"},
    **{dict: "a map", list: "a list", tuple: "a list"},
}


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of an options class.

    hint: the type with its marks. default: `dataclasses.MISSING` if it has none. inner: the options class in the type,
    as of `adversarial: AdversarialOptions`; `Choice` for a chosen file, as of `loss`, and `str` for its name, as of
    `optimizer.name`, both with the category.
    """

    name: str
    hint: Any
    default: Any
    inner: Any = None
    category: Category | None = None

    @cached_property
    def is_list(self) -> bool:
        """Whether the type is a list, or an optional list of options classes, where null means an empty one.

        An optional list of plain values is none: its null has a meaning of its own, as of `match`.
        """
        has_parts = self.inner is not None and _is_union(self.hint)
        parts = get_args(self.hint) if has_parts else (self.hint,)
        return any(map(_is_list, parts))

    @cached_property
    def runs_code(self) -> bool:
        """Whether the value is a file whose reading may run code of it."""
        marks = [mark for part in (self.hint, *get_args(self.hint)) for mark in getattr(part, "__metadata__", ())]
        return any(isinstance(mark, IsPath) and mark.runs_code for mark in marks)

    @cached_property
    def is_map(self) -> bool:
        """Whether the type is a map of names to options classes."""
        return self.inner is not None and get_origin(self.hint) is dict

    @cached_property
    def is_value_or_map(self) -> bool:
        """Whether a plain value or a map of options is valid: `weight: 10`, or the start and end of a schedule."""
        parts = get_args(self.hint) if _is_union(self.hint) else ()
        plain = [part for part in parts if part is not type(None) and not _is_list(part) and part is not self.inner]
        return dataclasses.is_dataclass(self.inner) and self.category is None and bool(plain)

    @cached_property
    def is_optional(self) -> bool:
        """Whether null is valid."""
        return _is_union(self.hint) and type(None) in get_args(self.hint)


@cache
def fields_of(kind: Any) -> dict[str, Field]:
    """Return the fields of an options class by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _field(field, hints[field.name]) for field in dataclasses.fields(kind)}


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    factory = field.default_factory
    default = field.default if factory is dataclasses.MISSING else factory()
    for part in _members(hint):
        if (category := category_of(part)) is not None:
            return Field(name=field.name, hint=hint, default=default, inner=get_args(part)[0], category=category)
        if isinstance(part, type) and dataclasses.is_dataclass(part):
            return Field(name=field.name, hint=hint, default=default, inner=part)
    return Field(name=field.name, hint=hint, default=default)


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the types in an optional type, in a list, in a map of names, or in an optional list."""
    if _is_union(hint):
        members: list[object] = []
        for part in get_args(hint):
            members += _members(part) if _is_list(part) else (part,)
        return tuple(members)
    return get_args(hint) if _is_list(hint) or get_origin(hint) is dict else (hint,)


def category_of(hint: Any) -> Category | None:
    """Return the category that a type's names are chosen from; None for other types."""
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Category)), None)


def literal_words(hint: Any) -> tuple[Any, ...]:
    """Return the values of every `Literal` in a type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(word for part in get_args(hint) for word in literal_words(part))


def describe(hint: Any) -> str:
    """Describe a type in words: "an integer >= 1 or null", "a list of 2, each an integer", "one of mean, worst".

    An options class is "a map"; as one of several types, with its keys: "a number or a map of start, final".
    """
    origin = get_origin(hint)
    arguments = get_args(hint)
    category = category_of(hint)
    if category is not None:
        return f"a name of {category.name}, or the dotted path of a module"
    if origin is Annotated and IsImageSize() in arguments[1:]:
        return "a number of pixels or HEIGHTxWIDTH, as in 96x160"
    if origin is Annotated:
        bounds = [_describe_bounds(mark) for mark in arguments[1:] if isinstance(mark, Interval)]
        return " ".join([describe(arguments[0]), *bounds])
    if origin is Literal:
        words = ", ".join(str(w).lower() if isinstance(w, bool) else str(w) for w in arguments)
        return f"one of {words}" if len(arguments) > 1 else words
    if _is_union(hint):
        # "a number >= 0 or a map of start, final", but "a map or null": its keys have lines of their own
        has_value = any(
            (part is not type(None) and part in _PLAIN) or get_origin(part) is Annotated for part in arguments
        )
        return " or ".join(_describe_map(part) if has_value else describe(part) for part in arguments)
    if origin in (list, tuple):
        return _describe_list(list(arguments))
    if origin is dict and arguments[1] is not Any:
        return f"a map of names, each {describe(arguments[1])}"
    return _PLAIN.get(origin or hint, "a map")


def _describe_map(part: Any) -> str:
    """Describe one of several types: of a map its keys."""
    is_options = isinstance(part, type) and dataclasses.is_dataclass(part)
    return f"a map of {', '.join(fields_of(part))}" if is_options else describe(part)


def _describe_bounds(interval: Interval) -> str:
    bounds = ((">=", interval.ge), (">", interval.gt), ("<=", interval.le), ("<", interval.lt))
    return " and ".join(f"{sign} {bound}" for sign, bound in bounds if bound is not None)


def _describe_list(items: list[Any]) -> str:
    length = "" if len(items) == 1 or items[-1] is Ellipsis else f" of {len(items)}"
    kinds = list(dict.fromkeys(describe(item) for item in items if item is not Ellipsis))
    return f"a list{length}, each {kinds[0]}" if len(kinds) == 1 else f"a list of {', '.join(kinds)}"


def _is_list(hint: Any) -> bool:
    return get_origin(hint) in (tuple, list)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)
