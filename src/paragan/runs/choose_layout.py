"""Choice of the layout for `train.layout: auto`, before the first step of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from paragan import build
from paragan.config import RunConfig
from paragan.core.collective import run_on_main
from paragan.core.dist import World
from paragan.core.errors import is_out_of_memory
from paragan.core.network_factory import Model
from paragan.core.types import Can
from paragan.game.options import PlayerOptions
from paragan.runs.choose_executor import recorded_config
from paragan.runs.layout_search import Say
from paragan.runs.layout_trial import find_layout
from paragan.runs.trial_steps import TrialRun

_SETTINGS = ("channels_last", "layout", "micro_batches")
Find = Callable[[RunConfig], RunConfig]


def choose_layout(
    config: RunConfig,
    out: Path,
    fresh: bool,
    world: World,
    say: Say,
    model: Model | None = None,
    find: Find | None = None,
) -> RunConfig:
    """Return the config with the settings that its layout `auto` leaves open.

    Any other config is returned unchanged. Collective: every rank must call this. A run that
    resumes in `out` reuses its recorded settings, unless `fresh`; otherwise rank 0 measures. find:
    returns the config with a layout; None: a search on this device.
    """
    if config.train.layout != "auto":
        return config
    fixed = replace(config, train=replace(config.train, layout="fixed"))

    def choose() -> dict[str, Any]:
        found = (None if fresh else recorded_config(config, out)) or _found(fixed, world, say, model, find)
        return {"g": _settings(found.g), "d": _settings(found.d)}

    chosen = run_on_main(world, choose)
    return replace(fixed, g=_completed(config.g, chosen["g"]), d=_completed(config.d, chosen["d"]))


def _found(config: RunConfig, world: World, say: Say, model: Model | None, find: Find | None) -> RunConfig:
    """Measure steps in turns, unless networks are compiled or have no layout."""
    if config.train.executor != "eager":
        say(f"layout    plain: the executor {config.train.executor} chooses layouts itself")
        return config
    if config.g.recompute or config.d.recompute:
        say("layout    plain: recomputed activations have no layout")
        return config
    if world.size > 1 and _shards_weights(config, world):
        say("layout    plain: sharded weights have no layout")
        return config
    measured = build.in_turns(config)
    try:
        return find(measured) if find is not None else find_layout(TrialRun(config, world, model), measured, say).config
    except Exception as error:
        is_apart = build.scheme(config).is_concurrent and world.size > 1  # a rank has one player
        if not (is_apart and is_out_of_memory(error)):
            raise
    say("layout    plain: both players do not fit into one process, and are not measured")
    return config


def _shards_weights(config: RunConfig, world: World) -> bool:
    strategies = (build.strategy_on_ranks(player, world.device) for player in (config.g, config.d))
    return any(Can.WHOLE_WEIGHTS not in strategy.can for strategy in strategies)


def _settings(player: PlayerOptions) -> dict[str, Any]:
    return {name: getattr(player, name) for name in _SETTINGS}


def _completed(player: PlayerOptions, chosen: dict[str, Any]) -> PlayerOptions:
    """Return the player with the chosen settings; those that a user set are unchanged."""
    defaults = PlayerOptions()
    is_open = {name: getattr(player, name) == getattr(defaults, name) for name in _SETTINGS}
    return replace(player, **{name: value for name, value in chosen.items() if is_open[name]})
