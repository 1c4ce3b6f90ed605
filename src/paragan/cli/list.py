"""`paragan list`: names that a config may use. Source files are read, not imported."""

import json
from typing import Annotated

import typer

from paragan.cli.arguments import AsJson
from paragan.cli.table import format_table, terminal_width
from paragan.core import registry

_CATEGORY = "models, losses, recipes, ... (default: all)."
Category = Annotated[str | None, typer.Argument(metavar="CATEGORY", help=_CATEGORY)]


def list_all(category: Category = None, as_json: AsJson = False) -> None:
    """List recipes, models, losses and other names for a config."""
    categories = registry.categories() if category is None else [category]
    entries = {name: registry.descriptions(name) for name in categories}
    if as_json:
        names = {name: list(of_category) for name, of_category in entries.items()}
        print(json.dumps(names if category is None else names[category]))
    elif category is not None:
        print(_table(entries[category]))
    else:
        blocks = (f"{name}\n{_table(rows, 2)}" for name, rows in entries.items() if rows)
        print("\n\n".join(blocks))


def _table(descriptions: dict[str, str], indent: int = 0) -> str:
    return format_table(list(descriptions.items()), terminal_width(), indent)
