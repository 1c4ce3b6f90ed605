"""Check of the values at the leaves of a config, with pydantic."""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ConfigDict, Field, TypeAdapter

from paragan.config.field_types import is_union
from paragan.core.option_types import Range


def check_value(hint: Any, value: Any) -> Any:
    """The value converted to the type; `ValueError` where it does not fit.

    Checked as JSON, where a strict check still accepts a list for a tuple and 1 for 1.0.
    """
    return _adapter(hint).validate_json(json.dumps(value))


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(_bounded(hint), config=ConfigDict(strict=True, allow_inf_nan=False))


def _bounded(hint: Any) -> Any:
    """The same type with every `Range` as pydantic's constraint."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = [Field(ge=mark.least, gt=mark.above, le=mark.most) for mark in arguments[1:] if isinstance(mark, Range)]
        return Annotated[(_bounded(arguments[0]), *marks)] if marks else _bounded(arguments[0])
    if is_union(hint):
        return Union[tuple(map(_bounded, arguments))]  # noqa: UP007 the members are known at run time only
    return origin[tuple(map(_bounded, arguments))] if origin in (list, tuple, dict) else hint
