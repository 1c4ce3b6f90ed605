"""Arguments of one optimiser's constructor, and groups of its parameters by patterns over their names.

A group has other settings for the optimiser, such as no weight decay for biases. Groups are
resolved on the names of the whole network, before a strategy shards it. Names of weights under
spectral norm match without `parametrizations.….original`, too.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.registry import closest_name, did_you_mean
from paragan.core.settings_tree import located_key, shorten

# settings with one value per optimiser
_SHARED = ("params", "param_names", "fused", "foreach", "capturable", "differentiable")


def split_into_groups(
    parameters: Iterable[tuple[str, Tensor]], groups: Sequence[Mapping[str, Any]], elsewhere: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Split named parameters into groups, in the form that torch's optimisers take.

    The group of the parameters that match no pattern is first, and left out if empty; the others
    follow in the order of `groups`, with their pattern as `match` and their settings. Every group
    has `params` and `param_names`. elsewhere: names of parameters on other ranks; a group of only
    such is there, empty. Raises `ConfigError` for a pattern without parameters.
    """
    default: dict[str, Any] = {"params": [], "param_names": []}
    matched: list[dict[str, Any]] = []
    for number, group in enumerate(groups):
        settings = arguments_of(number, group)
        matched.append({**settings, "params": [], "param_names": [], "match": group["match"]})

    def group_of(name: str) -> dict[str, Any]:
        return next((group for group in matched if matches(name, group["match"])), default)

    names = list(elsewhere)
    for name, tensor in parameters:
        group_of(name)["params"].append(tensor)
        group_of(name)["param_names"].append(name)
        names.append(name)
    used_ids = {id(group_of(name)) for name in names}
    for number, group in enumerate(matched):
        if id(group) not in used_ids:
            raise ConfigError(_without_match(number, groups[number], names))
    return [group for group in (default, *matched) if id(group) in used_ids]


def arguments_of(number: int, group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group's settings without `match`; `ConfigError` for one that all groups share, or without a pattern."""
    for key in group:
        if key in _SHARED:
            where = key_of(number, group, key)
            raise ConfigError(f"{where}: it applies to all groups; set it in optimizer.arguments")
    pattern = group.get("match")
    if not isinstance(pattern, str) or not pattern:
        raise ConfigError(
            f"{key_of(number, group)}: it is required and must be a pattern over parameter names, such as '*.bias'"
        )
    return {key: value for key, value in group.items() if key != "match"}


def key_of(number: int, group: Mapping[str, Any], key: str = "match") -> str:
    """Return the location and dotted key of a group's setting."""
    return located_key(group, key, default=f"optimizer.groups.{number}")


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern matches the name of a parameter, or its name without a parametrization."""
    return fnmatchcase(name, pattern) or fnmatchcase(plain_name(name), pattern)


def plain_name(name: str) -> str:
    """Return the name of a weight without spectral norm or another parametrisation."""
    return re.sub(r"\bparametrizations\.(\w+)\.original\d*$", r"\1", name)


def _without_match(number: int, group: Mapping[str, Any], names: Sequence[str]) -> str:
    pattern = group["match"]
    where = key_of(number, group)
    if any(matches(name, pattern) for name in names):
        return f"{where}: earlier groups match all parameters of {pattern!r}; put it before them"
    return describe_no_match(where, pattern, names)


def describe_no_match(where: str, pattern: str, names: Sequence[str]) -> str:
    """Return the message for a pattern that matches no parameter. where: the setting."""
    near = ", ".join(get_close_matches(pattern, map(plain_name, names), 3, cutoff=0.0))
    return f"{where}: no parameter of the network matches {pattern!r}; the closest names are: {near}"


def with_floats(kind: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with floats for integers, also in tuples, as in the defaults."""
    parameters = inspect.signature(kind).parameters
    return {
        key: _like(parameters[key].default, value) if key in parameters else value for key, value in arguments.items()
    }


def check_types(kind: Callable[..., object], arguments: Mapping[str, object], where: Callable[[str], str]) -> None:
    """Raise `ConfigError` for an argument of another type than its default, such as text that is a number.

    Optimisers compare and multiply such text at their first step, or take it for true. where: as in `refusal`.
    """
    parameters = inspect.signature(kind).parameters
    for key in [key for key in arguments if key in parameters]:
        expected = _expected(parameters[key], arguments[key])
        if expected:
            default = f"the default is {key}={parameters[key].default}"
            raise ConfigError(f"{where(key)}: must be {expected}, not {shorten(arguments[key])}; {default}")


def _expected(parameter: inspect.Parameter, value: object) -> str:
    """Return what an argument must be; empty if it is that, or if its default does not say.

    By the default: true or false for True, a number for 0.1, a list of two numbers for (0.9, 0.999).
    """
    default = parameter.default
    if "str" in str(parameter.annotation) or value is default:
        return ""
    if isinstance(default, bool) or (default is None and "bool" in str(parameter.annotation)):
        return "" if isinstance(value, int) else "true or false"
    if isinstance(default, int | float):
        return "" if _is_number(value) else "a number"
    if not isinstance(default, tuple):
        return ""
    return "" if _is_list_like(value, default) else f"a list of {len(default)} numbers"


def _is_list_like(value: object, default: tuple[object, ...]) -> bool:
    """Return whether a value is a list of as many numbers, with None only where the default has it: (None, 1e-3)."""
    if not isinstance(value, list | tuple) or len(value) != len(default):
        return False
    return all(_is_number(item) or item is part is None for item, part in zip(value, default, strict=True))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Tensor) and not isinstance(value, bool)


def refusal(
    kind: Callable[..., Any], arguments: Mapping[str, Any], error: Exception, where: Callable[[str], str]
) -> str:
    """Return the message for a constructor that raised `error`: the argument, the problem, the fix.

    The argument is one that the constructor does not have; else one that the error names, as "Invalid beta" does; else
    one of another length than its default. where: returns location and dotted key of an argument, and of all for "".
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
    known_keys = [key for key in arguments if key in parameters]
    named = [key for key in known_keys if re.search(rf"\b{re.escape(key.rstrip('s'))}", str(error))]
    wrong = named or [k for k in known_keys if _length(arguments[k]) != _length(parameters[k].default)]
    if not wrong:
        return f"{where('')}: {name} raised {type(error).__name__}: {error}; {listed}"
    default = f"{name}'s default is {wrong[0]}={parameters[wrong[0]].default}"
    return f"{where(wrong[0])}: {wrong[0]}={arguments[wrong[0]]}: {error}; {default}; {listed}"


def _like(default: Any, value: Any) -> Any:
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, tuple) and isinstance(value, (list, tuple)) and len(value) == len(default):
        return type(value)(_like(*pair) for pair in zip(default, value, strict=True))
    return value


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (list, tuple)) else -1
