"""Options that a program makes: a number or word that a field cannot have is refused by its name, as in a recipe."""

import functools
from typing import Annotated, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError

from paragan.config.field_types import describe, fields_of
from paragan.core.errors import ConfigError
from paragan.core.weight_schedule import WeightSchedule

_NUMBERS = {int, float, bool, type(None), WeightSchedule}
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)  # text is no number


def checked(kind: type, name: str) -> type:
    """Return a class of options, which from now on raises `ConfigError` for such values. name: its public one."""
    make = kind.__init__  # type: ignore[misc]

    @functools.wraps(make)
    def checking(self: object, *args: object, **kwargs: object) -> None:
        given = dict(zip(fields_of(kind), args, strict=False)) | kwargs
        for key in fields_of(kind).keys() & given.keys():
            _check(f"{name}: {key}", given[key], fields_of(kind)[key].hint)
        make(self, *args, **kwargs)

    if not hasattr(make, "__wrapped__"):
        kind.__init__ = checking  # type: ignore[misc]
    return kind


def _check(where: str, value: object, hint: object) -> None:
    if all(kind in _NUMBERS or isinstance(kind, str) for kind in _plain_types(hint)):
        number = value.item() if hasattr(value, "item") else value  # of numpy or torch
        try:
            TypeAdapter(hint, config=_STRICT).validate_python(number)  # type: ignore[arg-type]
        except ValidationError:
            raise ConfigError(f"{where} is {value!r}; pass {describe(hint)}") from None


def _plain_types(hint: object) -> set[object]:
    parts = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return set().union(*map(_plain_types, parts)) if parts else {hint}
