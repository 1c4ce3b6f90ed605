"""Settings and names that earlier versions had, and what to use instead."""

import re
from functools import cache
from pathlib import Path

from paragan.config.field_types import fields_of
from paragan.core.registry import names, options

_FILE = Path(__file__).with_suffix(".yaml")  # its head describes the keys
_CELL = re.compile(r"^grid\.cells\.\d+\.")
_PLAYER = re.compile(r"^(grid\.cells\.N\.)?(g|d|players\.\w+)\.")


def replacement_of(*keys: str) -> str | None:
    """Return what to do instead of the first of these keys that was removed, or None.

    The keys of every player are listed as those of `g`, and those of every cell as of `grid.cells.N`.
    Names are also found in other letter case.
    """
    removed = {key.casefold(): text for key, text in _removed().items()}
    listed = (_PLAYER.sub(r"\1g.", _CELL.sub("grid.cells.N.", key)).casefold() for key in keys)
    return next((removed[key] for key in listed if key in removed), None)


def replacement_of_option(path: str, category: str, name: str, key: str) -> str | None:
    """Return what to do instead of an option; None if none had it.

    path: such as `model.width`. category, name: of its file, such as models and dcgan; "" where no file is chosen.
    An option that `name` never had gets the text of the files that had it, if they all agree and none has it today.
    """
    replacement = replacement_of(f"{category}.{name}.{key}", path)
    return replacement or (_text_of_other_files(category, key) if category else None)


def _text_of_other_files(category: str, key: str) -> str | None:
    pattern = re.compile(rf"{category}\.\w+\.{re.escape(key)}", re.IGNORECASE)
    texts = {text for listed, text in _removed().items() if pattern.fullmatch(listed)}
    if len(texts) != 1 or any(key.casefold() in fields_of(options(category, other)) for other in names(category)):
        return None
    return texts.pop()


@cache
def _removed() -> dict[str, str]:
    from yaml import safe_load

    return safe_load(_FILE.read_text(encoding="utf-8")) or {}
