"""The words after `train` and `config`: a recipe or a run folder, and settings."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import typer

from paragan.config.overrides import is_override
from paragan.core import registry
from paragan.core.command import program_command
from paragan.core.errors import ConfigError

_DEFAULT_RECIPE = "digits"
ANY_OPTION = {"ignore_unknown_options": True}  # settings of a verb: `read_words` answers options that it does not have


def read_words(words: Sequence[str] | None, context: typer.Context) -> tuple[str, list[str], Path | None]:
    """The recipe (a name or a YAML file), the settings, and the run folder where one stands in place of a recipe."""
    _refuse_options(words or (), context)
    overrides = [word for word in words or () if is_override(word)]
    recipes = [word for word in words or () if not is_override(word)]
    unfinished = next((word for word in recipes if _is_key(word)), None)
    if unfinished is not None:
        raise ConfigError(f"command line: found {unfinished!r} without a value, expected {unfinished}=VALUE")
    if len(recipes) > 1:
        raise ConfigError(f"command line: found the recipes {' and '.join(recipes)}, expected one, then key.path=value")
    recipe = recipes[0] if recipes else _DEFAULT_RECIPE
    folder = None if recipe in registry.names("recipes") or not Path(recipe).is_dir() else _run_folder(recipe)
    return (recipe if folder is None else str(folder / "config.yaml")), overrides, folder


def run_name(recipe: str) -> str:
    """What a run of this recipe is called: the name, or of a file its stem, or its folder where that says more."""
    path = Path(recipe)
    return path.resolve().parent.name if path.stem in ("recipe", "config") and path.suffix else path.stem


def home_expanded(word: str) -> str:
    """A path argument, or `--option=PATH`, with `~` as the home folder: shells leave the second as it is."""
    option, equals, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
    return option + equals + (os.path.expanduser(value) if value == "~" or value.startswith("~/") else value)


def _is_key(word: str) -> bool:
    return "." in word and os.sep not in word and not word.endswith((".yaml", ".yml")) and not Path(word).is_dir()


def _run_folder(word: str) -> Path:
    if (Path(word) / "config.yaml").is_file():
        return Path(word)
    raise ConfigError(
        f"{word} is a folder without config.yaml, so it is not a run to resume; to train on images in it: "
        f"{program_command()} train own data.path={shlex.quote(word)}"
    )


def _refuse_options(words: Sequence[str], context: typer.Context) -> None:
    """An option of another program is answered with the setting that it is here."""
    found = next((i for i, word in enumerate(words) if word.startswith("-") and len(word) > 1), None)
    if found is None:
        return
    from paragan.config import RunConfig
    from paragan.config.hints import HINTS

    option, given, value = words[found].partition("=")
    following = words[found + 1] if found + 1 < len(words) else ""
    if not given and following and not following.startswith("--"):
        value = following
    key = option.lstrip("-")
    own = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
    if (meant := registry.closest_name(option, own, 0.8)) is not None:
        hint = f"did you mean {meant}?"
    elif (known := HINTS.setting(key, value or None)) is not None:
        hint = known
    elif "." in key or key in {field.name for field in fields(RunConfig)}:
        hint = f"give {key}={value or 'VALUE'}"
    else:
        hint = f"settings are given as key.path=value; `{program_command()} config` prints them all"
    raise ConfigError(f"{option} is not an option of {context.info_name}; {hint}")
