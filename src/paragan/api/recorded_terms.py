"""Records of losses and terms of a program, for `config.yaml`."""

from __future__ import annotations

import dataclasses
from typing import Any

from paragan.core.errors import ConfigError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.loss import Loss
from paragan.core.protocols import Penalty
from paragan.core.types import Side


def record_of(term: Any) -> dict[str, str]:
    """Return the entry of `penalties` for a term; `ConfigError` for anything else."""
    if not isinstance(term, Penalty):
        found = type(term).__name__
        raise ConfigError(f"terms: {found} is not a term; pass paragan.Term objects, or other paragan.Penalty objects")
    if not isinstance(getattr(term, "side", None), Side):
        raise ConfigError(f"terms: {term.name} has no side; set side = paragan.Side.G or paragan.Side.D in its class")
    options = vars(term).get("options")
    held = term if dataclasses.is_dataclass(term) else options
    fields = dataclasses.fields(held) if dataclasses.is_dataclass(held) else ()
    values = {field.name: getattr(held, field.name) for field in fields if field.name not in ("name", "side")}
    text = ", ".join(f"{name}={_text(value)}" for name, value in values.items())
    return {
        "name": FROM_MEMORY,
        "term": term.name,
        "side": term.side.value,
        "settings": f"{type(term).__name__}({text})",
    }


def recorded_loss(loss: Any) -> dict[str, str]:
    """Return the entry `loss` for a loss object; `ConfigError` for anything else."""
    if not isinstance(loss, Loss):
        raise ConfigError(f"loss is a {type(loss).__name__}; pass a name, such as 'hinge', or a paragan.Loss")
    return {"name": FROM_MEMORY, "functions": f"{_text(loss.d)}, {_text(loss.g)}"}


def _text(value: Any) -> str:
    """Return a value as text that is equal in every process: functions by name."""
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(str, value)))}}}"
    return repr(value)
