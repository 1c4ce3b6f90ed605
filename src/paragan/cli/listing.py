"""`paragan list` and `paragan config`: what there is, and what a run would be. Sources are read, not imported."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING

from paragan.config.config_reader import NAMES_ONLY
from paragan.core import registry
from paragan.core.command import program_command
from paragan.core.errors import ConfigError
from paragan.core.option_types import TORCH_OPTIMISERS
from paragan.core.printable import to_printable
from paragan.distributed.launch import mpiexec, rank_env

if TYPE_CHECKING:
    from paragan.config import RunConfig

_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z`])")  # not that of "et al. 2018"


def show_shelf(name: str, as_json: bool) -> None:
    """The names on one shelf: a JSON list, or a line each with what it is."""
    found = _entries(_known(name))
    print(json.dumps(list(found)) if as_json else _table(found))


def show_shelves(as_json: bool) -> None:
    """All shelves: a JSON map of lists, or a block each."""
    found = {name: _entries(name) for name in registry.categories()}
    if as_json:
        print(json.dumps({name: list(entries) for name, entries in found.items()}))
    else:
        print("\n\n".join(f"{name}\n{_table(entries, '  ')}" for name, entries in found.items() if entries))


def loaded(recipe: str, overrides: list[str], outside: Container[str] | None = None) -> RunConfig:
    """The config, or an error that says where to look. outside: as `config.load` has it."""
    from paragan.config import load

    try:
        return load(recipe, overrides, outside, _warn)
    except ConfigError as error:
        if recipe in registry.names("recipes"):
            where = f"`{program_command()} config {recipe}` prints every setting"
        elif Path(recipe).is_file():
            where = f"`{program_command()} config digits` prints a whole recipe"
        else:
            where = f"`{program_command()} list recipes` tells what each is"
        joint = "\n" if "\n" in str(error) else "; "
        raise ConfigError(f"{error}{joint}{where}") from None


def _warn(line: str) -> None:
    """Of the ranks of a run, none repeats what its launcher has said."""
    if rank_env.from_environment() is None and mpiexec.rank_and_size() is None:
        print(to_printable(line), file=sys.stderr)


def show_config(recipe: str, overrides: list[str], as_json: bool) -> None:
    """Every setting a run would have, as YAML that is itself a recipe, or as JSON. Outside code is not imported: of its
    options only those that are written appear.
    """
    from paragan.config import dump, to_tree  # here, since pydantic is not needed to list

    config = loaded(recipe, overrides, NAMES_ONLY)
    print(json.dumps(to_tree(config), indent=2) if as_json else dump(config), end="\n" if as_json else "")


def explain_config(recipe: str, overrides: list[str], as_json: bool) -> None:
    """Every setting a run would have with its meaning, values, default and where it was set, or a JSON list."""
    loaded(recipe, overrides, NAMES_ONLY)
    from paragan.config.reference import of_run

    settings = of_run(recipe, overrides)
    if as_json:
        print(json.dumps([dataclasses.asdict(one) for one in settings], indent=2))
        return
    for one in settings:
        default = "required" if one.required else f"default {json.dumps(one.default, ensure_ascii=False)}"
        source = f"; set in {one.place}" if one.place else ""
        print(f"{one.key} = {json.dumps(one.value, ensure_ascii=False)}")
        print(textwrap.indent(textwrap.fill(f"{one.meaning} ({one.kind}; {default}{source})".lstrip(), 96), "    "))


def _known(name: str) -> str:
    if name not in registry.categories():
        hint = registry.did_you_mean(registry.closest_name(name, registry.categories()))
        raise ConfigError(f"unknown category {name!r}; choose one of {', '.join(registry.categories())}{hint}")
    return name


def _entries(name: str) -> dict[str, str]:
    """Name -> what it is, in one sentence."""
    ready = {kind: f"torch.optim.{kind}" for kind in TORCH_OPTIMISERS} if name == "optim" else {}
    return ready | {entry: _description(registry.find_source(name, entry)) for entry in registry.names(name)}


def _description(path: Path) -> str:
    """The first sentence of the docstring, or the first line of a recipe's or preset's comment."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text.partition("\n")[0].lstrip("# ")
    paragraph = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
    return _SENTENCE_END.split(" ".join(paragraph.split()), maxsplit=1)[0]


def _table(entries: dict[str, str], indent: str = "") -> str:
    """A line for each name; on a terminal, lines that are too long are wrapped."""
    width = max(map(len, entries), default=0)
    lines = [f"{indent}{name:<{width}}  {text}".rstrip() for name, text in entries.items()]
    if sys.stdout.isatty():
        columns, hang = shutil.get_terminal_size().columns, " " * (len(indent) + width + 2)
        lines = [textwrap.fill(line, columns, subsequent_indent=hang, break_on_hyphens=False) for line in lines]
    return "\n".join(lines)
