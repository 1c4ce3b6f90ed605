"""Resume of the run in a folder: which settings may change, and the record of changes."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeGuard

from paragan.config import RunConfig, compare, read_recipe, used_code
from paragan.config.sections import NAMES_ONLY
from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.outside_code import CodeFolder, has_moved, is_file_name
from paragan.core.printable import join_some
from paragan.core.settings_tree import shorten
from paragan.engine.options import Change
from paragan.runs.folder import RunFolder

# beginnings of the keys that a resume may change freely: "every." stands for all keys of that section
_MAY_CHANGE = (
    *("train.kimg", "train.timeout_s", "train.executor", "train.watchdog_s", "train.deterministic"),
    *("train.change_rates", "every.", "evaluation.", "writers", "data.path", "devices", "rollback.", "loading."),
    *("history", "workers", "transport", "coordinator", "grid.executor", "grid.heartbeat_s"),
)
_PLAYER = r"(g|d|players\.\w+)\."
_PLACEMENT = re.compile(_PLAYER + r"(strategy|recompute|offload)")
_RATES = re.compile(_PLAYER + r"(optimizer\.(lr|groups.*)|schedule\.\w+)")
_MAX_NAMED = 5


def former_run(
    folder: RunFolder, config: RunConfig, log: Callable[[str], None], code: CodeFolder | None = None
) -> RunConfig | None:
    """Return the config of the run that `config` resumes; None if a new run starts.

    Moves a run with other settings aside that failed before its first step. code: where its outside code lies now.
    Raises `CheckpointError` if settings differ that must not, `ConfigError` for `train.change_rates` without a run.
    """
    if not folder.config.exists():
        if config.train.change_rates:
            raise ConfigError(f"--change needs a run to resume, and {folder.path} holds none; leave it out")
        return None
    before = _read_config(folder)
    config = with_recorded_init(config, before)
    changed = {
        key: (was, now)
        for key, (was, now) in compare(before, config).items()
        if not (key.startswith(_MAY_CHANGE) or _PLACEMENT.match(key) or _is_moved_code(was, now, folder, code))
    }
    if changed and folder.failed_before_start:
        log(f"the former run, which ended before its first step, was moved to {folder.set_aside()}")
        return None
    rates = {key for key in changed if _RATES.fullmatch(key) and config.grid is None}
    refused = [key for key in changed if not (config.train.change_rates and key in rates)]
    if refused:
        texts = [f"{key} was {shorten(changed[key][0])}, now {shorten(changed[key][1])}" for key in refused]
        named = join_some(texts, _MAX_NAMED, "; ")
        cure = "add --change to change learning rates from here on, " if rates.issuperset(refused) else ""
        if any(_is_code(changed[key][1]) for key in refused):
            cure = "--code DIR --trust for code that has moved and changed, "
        raise CheckpointError(
            f"run folder {folder.path} holds a run with other settings ({named}); give the former "
            f"values, {cure}choose another folder with --out DIR, or start anew with --fresh"
        )
    return before


def _read_config(folder: RunFolder) -> RunConfig:
    try:
        return read_recipe(str(folder.config), outside=NAMES_ONLY)
    except ConfigError as error:
        raise CheckpointError(
            f"cannot read {folder.config} ({str(error).splitlines()[0]}); delete it and run the same command "
            "again, which resumes from the checkpoints, or choose another folder with --out DIR"
        ) from None


def _is_code(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and is_file_name(value)


def _is_moved_code(before: object, now: object, folder: RunFolder, code: CodeFolder | None) -> bool:
    """Return whether two settings name the same .py file at two places, or one that `--trust` accepts for it."""
    if not (_is_code(before) and _is_code(now)):
        return False
    is_trusted = code is not None and code.trust and os.path.basename(before) == os.path.basename(now)
    return is_trusted or has_moved(before, now, used_code(folder.path))


def with_recorded_init(config: RunConfig, before: RunConfig | None) -> RunConfig:
    """Return the config with the sha256 that the former run recorded for the same `init.path`, also of players."""
    if before is None:
        return config
    for name, former in before.player_options.items():
        if (options := config.player_options.get(name)) is not None:
            config = config.with_player(name, replace(options, init=_recorded(options.init, former.init)))
    return replace(config, init=_recorded(config.init, before.init))


def _recorded(init: Any, before: Any) -> Any:  # of the run, `InitOptions`, or of players, `WeightsOptions`
    if init is None or before is None or init.path != before.path:
        return init
    return replace(init, sha256=init.sha256 or before.sha256)


def with_history(config: RunConfig, before: RunConfig | None, step: int) -> RunConfig:
    """Return the config for config.yaml of a run that resumes at `step`, with its changes.

    A change recorded for a later step, whose checkpoints are missing, applies from `step` on.
    """
    train = replace(config.train, change_rates=False)
    if before is None:
        return replace(config, train=train, history=())
    history = [replace(change, step=min(change.step, step)) for change in before.history]
    for key, (was, now) in compare(before, config).items():
        if _RATES.fullmatch(key):
            history.append(Change(step, key, was, now))
    return replace(config, train=train, history=tuple(history))


def change_messages(config: RunConfig, before: RunConfig | None) -> list[str]:
    """Return a line for every change that is not recorded yet. config: as `with_history` returns it."""
    known = () if before is None else before.history
    lines = []
    for number, change in enumerate(config.history):
        if number >= len(known):
            both = f"from {shorten(change.before)} to {shorten(change.after)}"
            lines.append(f"{change.key} changed {both} at step {change.step}")
        elif change.step < known[number].step:
            lines.append(
                f"the change of {change.key} at step {known[number].step} holds from step "
                f"{change.step} on: later checkpoints are missing"
            )
    return lines
