"""Initial weights of a run from files: another run's for both players (`init`), or per player (`g.init`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from paragan import build
from paragan.build.initial_weights_text import describe_loaded, refuse_misfit, table
from paragan.checkpoint.manifest import MANIFEST
from paragan.checkpoint.reader import Checkpoint, file_sha256, read_checkpoint
from paragan.checkpoint.weight_files import open_weights, sha256_of_files
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import RunConfig, player_key
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.network_factory import Model
from paragan.core.pieces import StoredTensors
from paragan.core.types import Side
from paragan.engine.training_loop import TrainingLoop
from paragan.export import generator_file
from paragan.game.initial_weights import start_from
from paragan.game.options import WeightsOptions

_EXPORTED = "generator.safetensors"


@dataclass(frozen=True)
class _SourceWeights:
    """Initial weights of the networks.

    networks, averages: tensors by side, g and d. step: None if unknown. sha256: of the manifest or
    the files.
    """

    step: int | None
    sha256: str
    networks: Mapping[str, StoredTensors]
    averages: Mapping[str, StoredTensors]


def initial_paths(config: RunConfig) -> dict[str, tuple[Path, ...]]:
    """Return the files and folders with initial weights, by setting: init, g.init, d.init, …"""
    paths: dict[str, tuple[Path, ...]] = {}
    if config.init is not None:
        paths["init"] = (Path(config.init.path),)
    for name, of_player in config.player_options.items():
        if of_player.init is not None:
            paths[f"{player_key(name)}.init"] = tuple(map(Path, of_player.init.paths))
    return paths


def initialised(
    config: RunConfig, trainer: TrainingLoop, model: Model | None, say: Callable[[str], None]
) -> tuple[RunConfig, list[str]]:
    """Copy the weights that `init`, `g.init`, `d.init`, … name into the players of `trainer`, at step 0.

    Returns the config with the sha256 of what was read, and a line about each of the settings. Raises
    `CheckpointError` if the weights are not those of `sha256`, or do not fit.
    """
    sources = initial_paths(config)
    if trainer.roles.is_split:
        raise ConfigError(
            f"{next(iter(sources))} is not available with scheme.name={config.scheme.name} on several ranks; use "
            "one process, or another scheme"
        )
    lines = []
    if config.init is not None:
        config, line = _start_both(config, trainer, model, say)
        lines.append(line)
    for name, options in config.player_options.items():
        if options.init is not None:
            found, line = _start_one(Side(name), options.init, config, trainer, model, say)
            config = config.with_player(name, replace(options, init=replace(options.init, sha256=found.sha256)))
            lines.append(line)
    return config, lines


def _start_both(
    config: RunConfig, trainer: TrainingLoop, model: Model | None, say: Callable[[str], None]
) -> tuple[RunConfig, str]:
    """Copy another run's weights into the players without an `init` of their own, as far as they fit."""
    assert config.init is not None
    path = config.init.path
    found = _read(Path(path), say)
    _refuse_changed("init", path, config.init.sha256, found)
    none = StoredTensors.of({})
    taken = {}
    for side, options in ((Side(name), options) for name, options in config.player_options.items()):
        if options.init is None:
            initial = partial(_initial, side, config, trainer, model)
            weights = found.networks.get(side.value, none)
            average = found.averages.get(side.value, none)
            taken[side] = start_from(trainer.players[side.value], weights, average, initial)
    if taken and not any(one.parameters for one in taken.values()):
        raise CheckpointError(
            f"init.path {path} has no weight with the name and shape of one in this model; give a "
            f"run of model.name={config.model.name} with the same sizes"
        )
    text = "; ".join(describe_loaded(side, one) for side, one in taken.items())
    init = replace(config.init, sha256=found.sha256)
    return replace(config, init=init), f"init from {path}, step {found.step}: {text}"


def _start_one(
    side: Side,
    options: WeightsOptions,
    config: RunConfig,
    trainer: TrainingLoop,
    model: Model | None,
    say: Callable[[str], None],
) -> tuple[_SourceWeights, str]:
    """Copy a player's weights; return them with a line. `CheckpointError`: none fits, or not all without `partial`."""
    found = _read_of_player(side, options, say)
    key = f"{player_key(side.value)}.init"
    files = ", ".join(options.paths)
    _refuse_changed(key, str(options.path), options.sha256, found)
    player = trainer.players[side.value]
    names = [name for name, _ in player.net.named_parameters()]
    weights = _named_as(names, _selected(f"{key}.path {files}", options.prefix, found.networks.get(side.value)))
    average = found.averages.get(side.value, StoredTensors.of({})).under(options.prefix)
    refuse_misfit(f"{key}.path {files}", side, player, weights, options.partial)
    initial = partial(_initial, side, config, trainer, model)
    taken = start_from(player, weights, _named_as(names, average), initial)
    if options.partial:
        say(table(side, taken))
    return found, f"{key} from {files}: {describe_loaded(side, taken, most=None)}"


def _selected(key: str, prefix: str, stored: StoredTensors | None) -> StoredTensors:
    if stored is None:
        raise CheckpointError(f"{key} has no weights of this player; give a run folder, or a safetensors file")
    found = stored.under(prefix)
    if not found:
        first = sorted({name.partition(".")[0] for name in stored})[:6]
        raise CheckpointError(
            f"{key} has no tensor under the prefix {prefix!r}; its names begin with {', '.join(first)}"
        )
    return found


def _named_as(names: list[str], stored: StoredTensors) -> StoredTensors:
    """Return tensors under the names of a network from memory, which is in a module as `net`."""
    inside = "net."
    if not all(name.startswith(inside) for name in names) or any(name in stored for name in names):
        return stored
    shapes = {inside + name: shape for name, shape in stored.shapes.items()}
    return StoredTensors(shapes, lambda name, box: stored.read(name.removeprefix(inside), box))


def _refuse_changed(key: str, path: str, sha256: str | None, found: _SourceWeights) -> None:
    if sha256 not in (None, found.sha256):
        raise CheckpointError(
            f"{key}.path {path} has changed: its sha256 is {found.sha256[:12]}…, and {key}.sha256 "
            f"is {str(sha256)[:12]}…; give the checkpoint of that time, or start anew "
            "with --fresh"
        )


def _read_of_player(side: Side, options: WeightsOptions, say: Callable[[str], None]) -> _SourceWeights:
    paths = [Path(path) for path in options.paths]
    if len(paths) == 1 and paths[0].is_dir():
        return _read(paths[0], say, f"{player_key(side.value)}.init")
    weights = {side.value: open_weights(paths, f"{player_key(side.value)}.init.path")}
    return _SourceWeights(None, sha256_of_files(paths), weights, {})


def _read(path: Path, say: Callable[[str], None], key: str = "init") -> _SourceWeights:
    """Read the newest undamaged weights at `path`; neither its config nor its code is used."""
    if (path / _EXPORTED).is_file():
        path = path / _EXPORTED
    if path.is_file():
        file = generator_file.read(path)
        generator = {"g": StoredTensors.of(file.weights)}
        return _SourceWeights(file.info.step, file_sha256(path), generator, generator)
    if (path / MANIFEST).is_file():
        return _from_checkpoint(read_checkpoint(path), key)
    found = CheckpointWriter(path / "checkpoints", say=say).newest()
    if found is None:
        raise CheckpointError(
            f"{key}.path {path} holds no weights; give a run folder with a checkpoint, "
            f"or a file of `{program_command()} export`"
        )
    return _from_checkpoint(found, key)


def _from_checkpoint(found: Checkpoint, key: str) -> _SourceWeights:
    sides = {side: stored for side, stored in found.groups.items() if not side.startswith("cell-")}
    if not sides:
        problem = f"{key}.path {found.path} holds a grid of cells"
        raise CheckpointError(f"{problem}; export one generator of it and give that")
    networks = {side: stored.under("net/") for side, stored in sides.items()}
    averages = {side: stored.under("ema/") for side, stored in sides.items()}
    return _SourceWeights(found.step, file_sha256(found.path / MANIFEST), networks, averages)


def _initial(side: Side, config: RunConfig, trainer: TrainingLoop, model: Model | None) -> dict[str, Any]:
    """Return the state of the whole network at step 0; every rank constructs it."""
    source = trainer.batches.source
    data = build.Data(source, source)
    return build.maker(config, side, data, trainer.prior.device, model)().state_dict()
