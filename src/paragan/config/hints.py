"""Other programs' names for settings and files, so that an unknown one is answered with the name here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Hints:
    """settings: whole key, or the key at the top and in `train` -> what to give instead, `{}` for the value.
    names: shelf -> name elsewhere, in lower case -> name of the file here."""

    settings: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def setting(self, key: str, value: Any) -> str | None:
        """What to give instead of an unknown key, with its value; None where nothing is known of it."""
        plain = key.casefold().replace("-", "_")
        text = self.settings.get(plain, self.settings.get(plain.removeprefix("train.")))
        return None if text is None else text.replace("={}", _assigned(value)).replace("{}", _short(value))

    def name(self, shelf: str, name: str) -> str | None:
        """The file that is called so elsewhere."""
        return self.names.get(shelf, {}).get(name.casefold())


def _assigned(value: Any) -> str:
    """`=value`, or `.key=value` for each entry of a map."""
    if isinstance(value, Mapping) and value:
        return "".join(f".{key}{_assigned(inner)}" for key, inner in list(value.items())[:1])
    return f"={_short(value)}"


def _short(value: Any) -> str:
    """As it is typed in a shell."""
    if value is None:
        return "VALUE"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
