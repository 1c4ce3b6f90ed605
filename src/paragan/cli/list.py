"""`paragan list`: names that a config may use, with descriptions. Source files are read, not imported."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import AsJson
from paragan.cli.table import format_table, terminal_width
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.option_types import TORCH_OPTIMISERS

_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z`])")  # not that of "et al. 2018"
Category = Annotated[
    str | None,
    typer.Argument(metavar="CATEGORY", help="models, losses, recipes, ... (default: all)."),
]


def list_names(category: Category = None, as_json: AsJson = False) -> None:
    """List recipes, models, losses and all else a config may name."""
    categories = registry.categories() if category is None else [category]
    entries = {name: _descriptions(name) for name in categories}
    if as_json:
        names = {name: list(of_category) for name, of_category in entries.items()}
        print(json.dumps(names if category is None else names[category]))
    elif category is not None:
        print(_table(entries[category]))
    else:
        blocks = (f"{name}\n{_table(of_category, 2)}" for name, of_category in entries.items() if of_category)
        print("\n\n".join(blocks))


def _descriptions(category: str) -> dict[str, str]:
    """Name -> one sentence of description."""
    categories = registry.categories()
    if category not in categories:
        meant = registry.did_you_mean(registry.closest_name(category, categories))
        raise ConfigError(f"unknown category {category!r}; choose one of {', '.join(categories)}{meant}")
    of_torch = {kind: f"torch.optim.{kind}" for kind in TORCH_OPTIMISERS} if category == "optim" else {}
    return of_torch | {name: _description(registry.find_source(category, name)) for name in registry.names(category)}


def _description(path: Path) -> str:
    """First sentence of the docstring, or first line of the comment of a recipe or preset."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text.partition("\n")[0].lstrip("# ")
    paragraph = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
    return _SENTENCE_END.split(" ".join(paragraph.split()), maxsplit=1)[0]


def _table(descriptions: dict[str, str], indent: int = 0) -> str:
    return format_table(list(descriptions.items()), terminal_width(), indent)
