"""Recipes: YAML files of a run's settings, read with overrides and validated by pydantic.

All problems of a recipe and its overrides are reported together, each with its line. Nothing here imports torch.
"""

import os
import shlex
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from paragan.config.config_tree import FORMAT, compare, outside_names, to_tree
from paragan.config.overrides import Overrides, merge, write_word
from paragan.config.recipe_by_size import larger_recipe, replaced_by, replacement_line, take_by_size
from paragan.config.run_config import RunConfig
from paragan.config.sections import ANY
from paragan.core import registry, strict_yaml
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.files import read_json_file
from paragan.core.option_types import Category, Choice
from paragan.core.outside_code import CodeFolder
from paragan.core.printable import join_some
from paragan.core.settings_tree import (
    COMMAND_LINE,
    Node,
    Problem,
    ProblemsError,
    SourceLocation,
    UnreadableError,
    flatten,
    shorten,
)

_MAX_NAMED = 5
_PRESET = "preset="
_RUN_FILES = ("metrics.jsonl", "checkpoints", "run.lock", "environment.json", "exit.json")
_MAX_BYTES = 1 << 20
_AUDIO = ("sample_rate", "n_fft", "hop", "win", "n_mels", "mel_scale")  # settings that parts share with the data


def read_recipe(
    recipe: str,
    overrides: Sequence[str] = (),
    outside: Container[str] | None = None,
    warn: Callable[[str], None] = lambda line: None,
) -> RunConfig:
    """Read a recipe with `key.path=value` words written over it.

    recipe: a name of `paragan list recipes`, or a path ending in .yaml or .yml. A word `preset=NAME` means all settings
    of the preset, and is applied before the other words. outside: the outside code (dotted paths) that the file may
    name; default: any, but none if the file is in a run folder; a `CodeFolder`: what that run has used, in this folder.
    warn: called with a line for each word that drops settings of the recipe. Raises `ConfigError` with one line per
    problem: `file:line: key: problem; fix`.
    """
    return read_with_places(recipe, overrides, outside, warn)[0]


def read_with_places(
    recipe: str,
    overrides: Sequence[str],
    outside: Container[str] | None,
    warn: Callable[[str], None] = lambda line: None,
) -> tuple[RunConfig, Node]:
    """Return the config, and the tree that it was read from, with the place of each value."""
    problems: list[Problem] = []
    tree = _open(recipe, problems)
    is_written = _take_format(tree) and Path(recipe).name == "config.yaml"
    is_of_run = is_written or _is_in_run_folder(recipe)  # such a file must not decide which code is imported
    if outside is None:
        outside = () if is_of_run else ANY
    elif isinstance(outside, CodeFolder):
        trust = not is_of_run if outside.trust is None else outside.trust
        outside = replace(outside, trust=trust, used=used_code(Path(recipe).parent))
    by_size = take_by_size(recipe, tree)
    writer = _write(tree, overrides, problems)
    if larger := replaced_by(by_size, tree):
        warn(replacement_line(recipe, larger, tree))
        return read_with_places(larger, overrides, outside, warn)
    anew = f"{program_command()} train RECIPE --out {shlex.quote(str(Path(recipe).parent))} --fresh"
    cure = f"change these lines of the file, or start a new run from a recipe, whose settings are current: {anew}"
    config = _validate(tree, problems, outside, cure if is_written else "")
    for line in writer.warnings(flatten(to_tree(config))):
        warn(line)
    return config, tree


def parse_recipe(text: str, source: str, outside: Container[str] = ANY, overrides: Sequence[str] = ()) -> RunConfig:
    """Return the config of a recipe in memory. source: its name in messages. overrides: words."""
    problems: list[Problem] = []
    tree = strict_yaml.read_map(text, SourceLocation(source, line=1), problems)
    is_exported = _take_format(tree)
    _write(tree, overrides, problems)
    return _validate(tree, problems, outside, "export the run again" if is_exported else "")


def _write(tree: Node, overrides: Sequence[str], problems: list[Problem]) -> Overrides:
    """Write presets, then the other words, over a tree."""
    for name in [word.removeprefix(_PRESET) for word in overrides if word.startswith(_PRESET)]:
        path = registry.find_source("presets", name)
        preset = strict_yaml.read_file(path, problems, shown=f"presets/{name}.yaml")
        _take_format(preset)
        merge(tree, preset)
    writer = Overrides(RunConfig, tree)
    for word in [word for word in overrides if not word.startswith(_PRESET)]:
        writer.write(word, problems)
    return writer


@dataclass(frozen=True)
class _DataConfig:
    """The settings of a run that `data check` and `data prepare` take."""

    data: Annotated[Choice, Category("datasets")]


def read_data_settings(name: str, path: str, words: Sequence[str]) -> Choice:
    """Return a data set of a path, with words `data.KEY=value`. Raises `ConfigError` for those that are none."""
    from paragan.config.validation import validate_config

    entries: dict[str, Node] = {"name": Node(COMMAND_LINE, name), "path": Node(COMMAND_LINE, path)}
    tree = Node(COMMAND_LINE, {"data": Node(COMMAND_LINE, entries)})
    problems: list[Problem] = []
    for word in words:
        write_word(tree, word, problems)
    return validate_config(_DataConfig, tree, problems=problems).data


def changes(recipe: str, config: RunConfig) -> dict[str, list[Any]]:
    """Return the differences from the recipe: dotted key -> [recipe's value, value here]."""
    try:
        plain = read_recipe(recipe, outside=outside_names(config))
        larger = larger_recipe(take_by_size(recipe, _open(recipe, [])), getattr(config.data.options, "size", None))
        if larger and (larger_config := read_recipe(larger)).model.name == config.model.name:  # it was used instead
            plain = larger_config
    except ConfigError:  # the recipe is incomplete without overrides
        return {}
    changed = compare(plain, replace(config, history=plain.history))
    return {key: list(both) for key, both in changed.items()}


def _validate(tree: Node, problems: list[Problem], outside: Container[str], cure: str) -> RunConfig:
    """Return the config. cure: for removed settings in a file that paragan wrote; empty for others."""
    # imported late: help works without pydantic
    from paragan.config.validation import validate_config

    try:
        return with_data_settings(validate_config(RunConfig, tree, outside, problems))
    except ProblemsError as error:
        removed = [problem.removed for problem in error.problems if problem.removed and problem.place != COMMAND_LINE]
        if not cure or not removed:
            raise
        removed.sort(key=lambda text: "leave it out" in text)  # first those that need another value
        named = join_some(removed, _MAX_NAMED, "; ")
        raise CheckpointError(
            f"{tree.place.source} was written by an older version of paragan; settings and values in it that were "
            f"removed: {len(removed)}, namely {named}; {cure}"
        ) from None


def with_data_settings(config: RunConfig) -> RunConfig:
    """Return a copy in which settings of audio that are null have the values of the data set, which decides them."""
    known = {name: getattr(config.data.options, name, None) for name in _AUDIO}

    def fill(choice: Choice) -> Choice:
        empty = {name: known[name] for name in _AUDIO if getattr(choice.options, name, "") is None}
        return replace(choice, options=replace(choice.options, **empty)) if empty else choice

    metrics = config.evaluation.metrics and tuple(map(fill, config.evaluation.metrics))
    return replace(
        config,
        model=fill(config.model),
        penalties=tuple(map(fill, config.penalties)),
        evaluation=replace(config.evaluation, metrics=metrics),
        writers=tuple(map(fill, config.writers)),
    )


def _open(recipe: str, problems: list[Problem]) -> Node:
    if recipe.endswith((".yaml", ".yml")):
        return strict_yaml.read_file(Path(recipe), problems)
    known = registry.names("recipes")
    if recipe not in known:
        hint = _similar_recipes(recipe, known)
        raise ConfigError(
            f"unknown recipe {recipe!r}; choose one of {len(known)} (digits, own, …) or give a path ending in "
            f".yaml{hint}"
        )
    path = registry.find_source("recipes", recipe)
    return strict_yaml.read_file(path, problems, shown=f"recipes/{recipe}.yaml")


def _similar_recipes(recipe: str, known: Sequence[str]) -> str:
    """Return the end of a message: a misspelled recipe, or all that have the word in their name."""
    close = registry.closest_name(recipe, known)
    containing = [name for name in known if recipe.casefold() in name]
    if len(containing) < 2 or len(recipe) < 3 or registry.closest_name(recipe, known, min_similarity=0.8):
        return registry.did_you_mean(close)
    return f"; recipes with {recipe!r} in their name: {', '.join(containing)}"


def used_code(run: Path) -> dict[str, str]:
    """Return the sha256 of the .py files outside paragan that a run has used, by their paths; empty if unknown."""
    with suppress(OSError, ValueError, AttributeError):
        recorded = read_json_file(run / "environment.json", dict, _MAX_BYTES).get("code", {})
        return {path: sha256 for path, sha256 in recorded.items() if isinstance(sha256, str)}
    return {}


def _is_in_run_folder(recipe: str) -> bool:
    """Return whether a recipe is a file in a run folder, or a link to one."""
    path = Path(recipe)
    if path.suffix not in (".yaml", ".yml"):
        return False
    folders = {path.parent, path.resolve().parent}
    return any(os.path.lexists(folder / name) for folder, name in product(folders, _RUN_FILES))


def _take_format(tree: Node) -> bool:
    """Remove the format from a file that paragan wrote, and return whether it had one.

    Refuses a later format, whose keys may have other meanings.
    """
    assert isinstance(tree.value, dict)
    node = tree.value.pop("format", None)
    if node is not None and (type(node.value) is not int or node.value != FORMAT):
        text = f"must be {FORMAT}, not {shorten(node.plain())}; a file of a later format needs a newer paragan"
        raise UnreadableError(node.place, text, "format")
    return node is not None
