"""A config as plain maps and as YAML, the outside code that it names, and the differences of two."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paragan.config.field_types import fields_of
from paragan.config.run_config import RunConfig
from paragan.core import strict_yaml
from paragan.core.option_types import Choice
from paragan.core.outside_code import is_file_name
from paragan.core.settings_tree import flatten

FORMAT = 1


def to_tree(config: RunConfig) -> dict[str, Any]:
    """Return every setting as plain maps, lists and scalars."""
    return {"format": FORMAT, **_plain(config)}


def dump(config: RunConfig, folder: Path | None = None) -> str:
    """Return YAML that `read_recipe` reads back to an equal config.

    folder: that of the file, from which .py files are named, so that both can be moved together.
    """
    tree = to_tree(config)
    return strict_yaml.to_yaml(tree if folder is None else _with_code_from(tree, folder))


def _with_code_from(tree: Any, folder: Path) -> Any:
    """Return a tree whose names of .py files are paths from a folder. Programs stay paths as written, as data does."""
    if isinstance(tree, list):
        return [_with_code_from(item, folder) for item in tree]
    if not isinstance(tree, dict):
        return tree
    named = {key: _with_code_from(item, folder) for key, item in tree.items()}
    name = tree.get("name")
    if isinstance(name, str) and is_file_name(name):
        named["name"] = os.path.relpath(name, folder.resolve())
    return named


def outside_names(config: RunConfig) -> frozenset[str]:
    """Return the outside code that a config names: dotted paths, .py files and programs of `torch.export`."""
    leaves = flatten(to_tree(config)).items()
    names = {value for key, value in leaves if key.rpartition(".")[2] == "name" and isinstance(value, str)}
    return frozenset(name for name in names if "." in name) | frozenset(_programs(config))


def compare(a: RunConfig, b: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Return the differences: dotted key -> values of both; None for a key that one does not have.

    `players` is the order of their updates, if the same players have another one.
    """
    before = flatten(to_tree(a))
    after = flatten(to_tree(b))
    if a.players.keys() == b.players.keys() and a.players:
        before["players"] = list(a.players)
        after["players"] = list(b.players)
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return {key: (before.get(key), after.get(key)) for key in keys}


def _programs(value: Any) -> Iterator[str]:
    """Yield the files whose reading may run code of them."""
    options = value.options if isinstance(value, Choice) else value
    if dataclasses.is_dataclass(options):
        kind: type = type(options)
        for name, field in fields_of(kind).items():
            below = getattr(options, name)
            if field.runs_code and below is not None:
                yield below
            else:
                yield from _programs(below)
    elif isinstance(options, Mapping | tuple):
        for item in options.values() if isinstance(options, Mapping) else options:
            yield from _programs(item)


def _plain(value: Any) -> Any:
    if isinstance(value, Choice):
        return {"name": value.name, **_plain(value.options)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
