"""Arguments of an optimiser's constructor from a config, and the message if it refuses them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from paragan.core.registry import closest_name, did_you_mean


def with_floats(kind: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with floats for integers, also in tuples, as in the defaults."""
    parameters = inspect.signature(kind).parameters
    return {
        key: _like(parameters[key].default, value) if key in parameters else value for key, value in arguments.items()
    }


def refusal(
    kind: Callable[..., Any], arguments: Mapping[str, Any], error: Exception, where: Callable[[str], str]
) -> str:
    """Return the message for a constructor that raised `error`: the argument, the problem, the fix.

    where: returns the location and dotted key of an argument, and of all of them for "".
    """
    name = getattr(kind, "__name__", "the optimizer")
    parameters = inspect.signature(kind).parameters
    known = [key for key in parameters if key != "params"]
    listed = f"its arguments are: {', '.join(known)}"
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = [] if takes_any else [key for key in arguments if key not in parameters]
    if unknown:
        meant = did_you_mean(closest_name(unknown[0], known))
        return f"{where(unknown[0])}: {name} has no such argument{meant}; {listed}"
    given = [key for key in arguments if key in parameters]
    # An error such as "Invalid beta" names the argument.
    named = [key for key in given if re.search(rf"\b{re.escape(key.rstrip('s'))}", str(error))]
    wrong = named or [k for k in given if _length(arguments[k]) != _length(parameters[k].default)]
    if not wrong:
        return f"{where('')}: {name} raised {type(error).__name__}: {error}; {listed}"
    default = f"{name}'s default is {wrong[0]}={parameters[wrong[0]].default}"
    return f"{where(wrong[0])}: {wrong[0]}={arguments[wrong[0]]}: {error}; {default}; {listed}"


def _like(default: Any, value: Any) -> Any:
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, tuple) and isinstance(value, (list, tuple)) and len(value) == len(default):
        return type(value)(_like(one, item) for one, item in zip(default, value, strict=True))
    return value


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (list, tuple)) else -1
