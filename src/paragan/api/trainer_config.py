"""Config of a `paragan.Trainer`: what it has in memory, with settings by dotted key."""

import json
from collections.abc import Mapping
from typing import Any

from paragan.api.trained import setting_word
from paragan.api.training import in_python_words
from paragan.config import RunConfig, parse_recipe
from paragan.core.capabilities import DATA_FROM_MEMORY, check_capabilities
from paragan.core.errors import ConfigError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.protocols import Penalty
from paragan.core.source import Source, StreamedSource
from paragan.datasets.base.program_data import DatasetSource


def config_of(objects: dict[str, Any], settings: Mapping[str, object]) -> RunConfig:
    """Return the config of objects in memory, by section, changed by settings. Raises `ConfigError`.

    Penalties of the settings are added to those in memory; other settings replace values.
    """
    tree = dict(objects)
    if "penalties" in settings:
        named = _penalties_of(settings["penalties"])
        # anything but a list is refused by the config, with its own words
        tree["penalties"] = [*named, *objects["penalties"]] if isinstance(named, list) else named
    words = [setting_word(key, value) for key, value in settings.items() if key != "penalties"]
    with in_python_words():
        return parse_recipe(json.dumps(tree), "Trainer", overrides=words)


def _penalties_of(setting: object) -> object:
    """Return the setting `penalties` as a list, if it is a list or one penalty; unchanged if it is anything else."""
    entries = list(setting) if isinstance(setting, list | tuple) else [setting]
    if any(isinstance(entry, Penalty) for entry in entries):
        raise ConfigError("settings: penalties has a penalty object; pass it in terms=[…], and names and maps here")
    setting_word("penalties", setting)  # which raises for other values that no file has
    return entries if isinstance(setting, list | tuple | str | dict) else setting


def check_settings(config: RunConfig, source: Source, held_out: Source | None) -> None:
    """Raise `ConfigError` for settings that need a named data set, model or images."""
    for key, choice in (("data.name", config.data), ("model.name", config.model)):
        if choice.name != FROM_MEMORY:
            problem = f"{key}={choice.name} is not available for tensors from Python"
            raise ConfigError(f"settings: {problem}; leave it out, or use paragan.train")
    # threads bound their memory by the size of a sample, which ragged ones do not have; processes by their number
    is_ragged = any(-1 in spec.shape for spec in source.tensors.values()) and not isinstance(source, DatasetSource)
    if config.loading.prefetch and (is_ragged or isinstance(source, StreamedSource)):
        raise ConfigError("settings: loading.prefetch is not available for ragged or streamed samples; leave it out")
    check_capabilities(DATA_FROM_MEMORY, config.needs)
    # images without held-out ones are compared with a fifth of those in training; other samples are not
    if config.evaluation.features is None and config.evaluation.metrics is not None and held_out is None:
        raise ConfigError("settings: evaluation.metrics needs held-out samples; pass held_out=DATA")
