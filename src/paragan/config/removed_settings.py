"""Settings and names that earlier versions had, and what to use instead."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_suffix(".yaml")
_PLAYER = re.compile(r"^(g|d|players\.\w+)\.")
_CELL = re.compile(r"^grid\.cells\.\d+\.[gd]\.")


def replacement_of(*keys: str) -> str | None:
    """Return what to do instead of the first of these keys that was removed, or None.

    The keys of every player are listed as those of `g`, and those of every cell as of `grid.cells.N.g`.
    """
    listed = [_CELL.sub("grid.cells.N.g.", _PLAYER.sub("g.", key)) for key in keys]
    return next((_removed()[key] for key in listed if key in _removed()), None)


@cache
def _removed() -> dict[str, str]:
    from yaml import safe_load

    return safe_load(_FILE.read_text(encoding="utf-8")) or {}
