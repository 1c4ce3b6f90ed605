"""Initial weights of a run from files: another run's for both players (`init`), or per player (`g.init`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paragan.build.data import Data
from paragan.build.initial_weights_text import describe_loaded, refuse_misfit, table
from paragan.build.networks import maker
from paragan.checkpoint.manifest import MANIFEST
from paragan.checkpoint.reader import Checkpoint, file_sha256, read_checkpoint, saved_base
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
from paragan.game.initial_weights import LoadedWeights, start_from
from paragan.game.options import PlayerOptions, WeightsOptions
from paragan.layers.adapter import adapter_names, base_names

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

    def of(self, side: Side, options: PlayerOptions) -> tuple[StoredTensors | None, StoredTensors]:
        """Return the tensors and averages of a player; of one that trains a part, averages serve as both."""
        weights = self.networks.get(side.value)
        average = self.averages.get(side.value, StoredTensors.of({}))
        return (average if options.trains_part and average else weights), average


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

    Returns the config with the sha256 of what was read, and a line about each of the settings.
    Raises `CheckpointError` if the weights are not those of `sha256`, or do not fit.
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
    for name, of_player in config.player_options.items():
        options = of_player.init
        if options is not None:
            side = Side(name)
            key = f"{player_key(name)}.init"
            found = _read_of_player(side, options, say)
            _refuse_changed(key, str(options.path), options.sha256, found)
            taken = _start_one(side, of_player, trainer, partial(_initial, side, config, trainer, model), found)
            lines.append(f"{key} from {', '.join(options.paths)}: {describe_loaded(side, taken, most=None)}")
            if options.partial:
                say(table(side, taken))
            config = config.with_player(name, replace(of_player, init=replace(options, sha256=found.sha256)))
    return config, lines


def load_base(net: nn.Module, side: Side, config: RunConfig, say: Callable[[str], None]) -> None:
    """Copy the weights that `g.init`, or `init`, names into a network in this process, as far as they fit."""
    options = config.player_options[side.value]
    if options.init is not None:
        found = _read_of_player(side, options.init, say)
    elif config.init is not None:
        found = _read(Path(config.init.path), say)
    else:
        return
    stored = found.of(side, options)[0] or StoredTensors.of({})
    weights = _named_as(net, stored.under("" if options.init is None else options.init.prefix))
    with torch.no_grad():
        for name, value in net.state_dict().items():
            if weights.shapes.get(name) == tuple(value.shape):
                value.copy_(weights[name])


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
            player = trainer.players[side.value]
            weights, average = found.of(side, options)
            both = _named_as(player.net, weights or none), _named_as(player.net, average)
            taken[side] = start_from(player, *both, initial)
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
    options: PlayerOptions,
    trainer: TrainingLoop,
    initial: Callable[[], Mapping[str, Tensor]],
    found: _SourceWeights,
) -> LoadedWeights:
    """Copy a player's weights. Raises `CheckpointError` if none fits, or not all without `partial`."""
    init = options.init
    assert init is not None
    key = f"{player_key(side.value)}.init.path {', '.join(init.paths)}"
    player = trainer.players[side.value]
    stored, average = found.of(side, options)
    weights = _named_as(player.net, _selected(key, init.prefix, stored))
    refuse_misfit(key, side, player, weights, init.partial)
    return start_from(player, weights, _named_as(player.net, average.under(init.prefix)), initial)


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


def _named_as(net: nn.Module, stored: StoredTensors) -> StoredTensors:
    """Return tensors under the names of a network with adapters, or from memory, which is in a module as `net`."""
    below = base_names(net)
    plain = [name for name, _ in net.named_parameters() if name not in adapter_names(net)]
    inside = "net."
    is_inside = all(name.startswith(inside) for name in plain) and not any(name in stored for name in plain)
    given = {inside + name if is_inside else name: name for name in stored}
    names = {below.get(name, name): of_file for name, of_file in given.items()}
    shapes = {name: stored.shapes[of_file] for name, of_file in names.items()}
    return StoredTensors(shapes, lambda name, box: stored.read(names[name], box))


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
    parts = [side for side in sides if key in ("init", f"{side}.init") and saved_base(found.values, side)]
    if parts:
        problem = f"{key}.path {found.path} holds only the trained part of {' and '.join(parts)}"
        raise CheckpointError(f"{problem}; export the run, which merges it, and give the exported file")
    networks = {side: stored.under("net/") for side, stored in sides.items()}
    averages = {side: stored.under("ema/") for side, stored in sides.items()}
    return _SourceWeights(found.step, file_sha256(found.path / MANIFEST), networks, averages)


def _initial(side: Side, config: RunConfig, trainer: TrainingLoop, model: Model | None) -> dict[str, Any]:
    """Return the state of the whole network at step 0; every rank constructs it."""
    source = trainer.batches.source
    data = Data(source, source)
    return maker(config, side, data, trainer.prior.device, model)().state_dict()
