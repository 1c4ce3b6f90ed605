"""Config of a `paragan.Trainer`: what it has in memory, with settings by dotted key."""

import json
import os
from collections.abc import Mapping
from typing import Any

from paragan.api.python_words import in_python_words, setting_word
from paragan.config import RunConfig, parse_recipe
from paragan.core.capabilities import DATA_FROM_MEMORY, check_capabilities
from paragan.core.errors import ConfigError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.protocols import Penalty
from paragan.core.source import Source, StreamedSource


def config_of(objects: dict[str, Any], settings: Mapping[str, object]) -> RunConfig:
    """Return the config of objects in memory, by section, changed by settings. Raises `ConfigError`.

    Penalties of the settings are added to those in memory; other settings replace values.
    """
    tree = dict(objects)
    if "penalties" in settings:
        named = settings["penalties"]
        _check_penalties(named)
        if isinstance(named, str | dict | os.PathLike):
            named = [named]  # one penalty, by name, file or map
        # the config refuses anything else in its own words
        tree["penalties"] = [*named, *objects["penalties"]] if isinstance(named, list | tuple) else named
    words = [setting_word(key, value) for key, value in settings.items() if key != "penalties"]
    with in_python_words():
        return parse_recipe(json.dumps(tree, default=os.fspath), "Trainer", overrides=words)


def _check_penalties(setting: object) -> None:
    """Raise `ConfigError` if the setting `penalties` has an object, or another value that a file cannot have."""
    entries = setting if isinstance(setting, list | tuple) else [setting]
    if any(isinstance(entry, Penalty) for entry in entries):
        raise ConfigError("settings: penalties has a penalty object; pass it in terms=[…], and names and maps here")
    setting_word("penalties", setting)  # raises for the other values


def check_settings(config: RunConfig, source: Source, held_out: Source | None) -> None:
    """Raise `ConfigError` for settings that need a named data set, model or images."""
    for key, choice in (("data.name", config.data), ("model.name", config.model)):
        if choice.name != FROM_MEMORY:
            problem = f"{key}={choice.name} is not available for tensors from Python"
            raise ConfigError(f"settings: {problem}; leave it out, or use paragan.train")
    # threads read ahead by the size of a sample, which ragged ones do not have; processes by a number of batches
    is_ragged = any(-1 in spec.shape for spec in source.tensors.values())
    is_unlimited = is_ragged and not source.is_read_by_processes
    if config.loading.prefetch and (is_unlimited or isinstance(source, StreamedSource)):  # a stream has no rows to read
        raise ConfigError("settings: loading.prefetch is not available for ragged or streamed samples; leave it out")
    check_capabilities(DATA_FROM_MEMORY, config.needs)
    # without features, scores compare with `held_out` itself; with them, `tensor_images.both_splits` can do without
    if config.evaluation.features is None and config.evaluation.metrics is not None and held_out is None:
        raise ConfigError("settings: evaluation.metrics needs held-out samples; pass held_out=DATA")
