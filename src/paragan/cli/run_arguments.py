"""Arguments of `train` and `config`: a recipe or a run folder, and settings."""

import os
import re
import shlex
from collections.abc import Container, Sequence
from dataclasses import fields
from pathlib import Path

import typer

from paragan.cli.arguments import run_path
from paragan.config import RunConfig, read_recipe
from paragan.config.hints import setting_hint
from paragan.config.overrides import is_override
from paragan.core import registry
from paragan.core.addresses import is_url
from paragan.core.command import program_command
from paragan.core.errors import ConfigError
from paragan.core.printable import print_to_stderr
from paragan.distributed.launch.rank_env import from_environment, mpi_rank_and_size

_DEFAULT_RECIPE = "digits"


def parse_words(words: Sequence[str] | None, context: typer.Context) -> tuple[str, list[str], str | None]:
    """Return the recipe (a name or a YAML file), the settings, and the run folder or address if given."""
    _check_options(words or (), context)
    overrides = [word for word in words or () if is_override(word)]
    recipes = [word for word in words or () if not is_override(word)]
    _check_brackets(words or ())
    _check_recipes(recipes)
    if len(recipes) > 1:
        raise ConfigError(f"{' and '.join(recipes)} are several recipes; use one, and settings as key.path=value")
    recipe = recipes[0] if recipes else _DEFAULT_RECIPE
    if is_url(recipe):
        return str(run_path(recipe, checkpoints=False) / "config.yaml"), overrides, recipe
    folder = Path(recipe)
    if recipe in registry.names("recipes") or not folder.is_dir():
        return recipe, overrides, None
    if not (folder / "config.yaml").is_file():
        raise ConfigError(
            f"{recipe} is a folder without config.yaml, so it is not a run to resume; to train on "
            f"images in it: {program_command()} train own data.path={shlex.quote(recipe)}"
        )
    return str(folder / "config.yaml"), overrides, recipe


def load_config(recipe: str, overrides: list[str], outside: Container[str] | None = None) -> RunConfig:
    """Load a config; errors end with advice. outside: custom code that may be imported."""
    try:
        return read_recipe(recipe, overrides, outside, _print_warning)
    except ConfigError as error:
        text = str(error)
        has_command = "--trust" in text or "--fresh" in text  # no listing of settings helps there
        separator = "\n" if "\n" in text else " " if text.endswith("?") else "; "
        raise ConfigError(text if has_command else f"{text}{separator}{_advice(recipe)}") from None


def _advice(recipe: str) -> str:
    command = program_command()
    if recipe in registry.names("recipes"):
        return f"`{command} config {recipe}` prints every setting"
    if Path(recipe).is_file():
        return f"`{command} config digits` prints a complete recipe"
    return f"`{command} list recipes` describes all recipes"


def _print_warning(line: str) -> None:
    """Print a warning, except on ranks: their launcher has printed it."""
    if from_environment() is None and mpi_rank_and_size() is None:
        print_to_stderr(line)


def _check_brackets(words: Sequence[str]) -> None:
    """Raise `ConfigError` for a list or map that the shell has split at its spaces."""
    for first, word in enumerate(words):
        if _depth(word) > 0:
            text = word
            for following in words[first + 1 :]:
                if _depth(text) <= 0:
                    break
                text = f"{text} {following}"
            raise ConfigError(f"{word!r} has an open bracket: the shell splits words at spaces; quote it: {text!r}")


def _depth(text: str) -> int:
    return sum((text.count(opening) - text.count(closing)) for opening, closing in ("[]", "{}"))


def _check_recipes(words: Sequence[str]) -> None:
    """Raise `ConfigError` for settings with spaces, a colon or no value, and for other files."""
    for word in words:
        path = Path(word)
        if word in registry.names("recipes") or is_url(word) or path.is_dir() or word.endswith((".yaml", ".yml")):
            continue
        if path.is_file() or (os.sep not in word and ("." in word or _is_setting(word))):
            raise ConfigError(
                f"{word!r} is not a recipe; give a .yaml file, or a setting as key.path=value without spaces"
            )


def _is_setting(key: str) -> bool:
    return key.partition(".")[0] in {field.name for field in fields(RunConfig)}


def _check_options(words: Sequence[str], context: typer.Context) -> None:
    """Raise `ConfigError` for unknown options, with the setting to use instead of each."""
    starts = [i for i, word in enumerate(words) if re.match(r"--?[^-\d.]", word)]
    if starts:
        raise ConfigError("\n".join(_unknown_option(words, position, context) for position in starts))


def _unknown_option(words: Sequence[str], position: int, context: typer.Context) -> str:
    option, is_assigned, value = words[position].partition("=")
    following = words[position + 1] if position + 1 < len(words) else ""
    if not is_assigned and not following.startswith("--"):
        value = following
    key = option.lstrip("-")
    options = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
    if (meant := registry.closest_name(option, options, min_similarity=0.8)) is not None:
        hint = f"did you mean {meant}?"
    elif (known := setting_hint(key, value or None)) is not None:
        hint = known
    elif "." in key or _is_setting(key):
        hint = f"use {key}={value or 'VALUE'}"
    else:
        hint = f"settings are written key.path=value; `{program_command()} config` prints them all"
    return f"{option} is not an option of {context.info_name}; {hint}"
