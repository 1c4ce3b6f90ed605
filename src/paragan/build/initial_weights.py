"""Initialisation of a run with another run's weights (`init`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import Tensor

from paragan import build
from paragan.checkpoint.manifest import MANIFEST
from paragan.checkpoint.reader import Checkpoint, file_sha256, read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import RunConfig
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.network_factory import Model
from paragan.core.pieces import StoredTensors
from paragan.core.types import Side
from paragan.engine.trainer import Trainer
from paragan.export import generator_file
from paragan.game.initial_weights import LoadedWeights, start_from

_MOST_NAMED = 4
_EXPORTED = "generator.safetensors"


@dataclass(frozen=True)
class _SourceWeights:
    """Initial weights of both networks.

    networks, averages: tensors by side, g and d. sha256: of the manifest or the exported file.
    """

    step: int
    sha256: str
    networks: Mapping[str, StoredTensors]
    averages: Mapping[str, StoredTensors]


def initialised(
    config: RunConfig, trainer: Trainer, model: Model | None, say: Callable[[str], None]
) -> tuple[RunConfig, str]:
    """Copy the weights that `config.init` names into the players of `trainer`, which is at step 0.

    Returns the config with the sha256 of what was read, and a line about what was copied. Raises
    `CheckpointError` if the weights are not those of `init.sha256`, or none of them fits.
    """
    assert config.init is not None
    if trainer.roles.is_split:
        raise ConfigError(
            f"init is not available with scheme.name={config.scheme.name} on several ranks; use "
            "one process, or another scheme"
        )
    path = config.init.path
    found = _read(Path(path), say)
    if config.init.sha256 not in (None, found.sha256):
        raise CheckpointError(
            f"init.path {path} has changed: its sha256 is {found.sha256[:12]}…, and init.sha256 "
            f"is {str(config.init.sha256)[:12]}…; give the checkpoint of that time, or start anew "
            "with --fresh"
        )
    taken = {side: _start(side, config, trainer, model, found) for side in Side}
    if not any(one.parameters for one in taken.values()):
        raise CheckpointError(
            f"init.path {path} has no weight with the name and shape of one in this model; give a "
            f"run of model.name={config.model.name} with the same sizes"
        )
    text = "; ".join(_described(side, one) for side, one in taken.items())
    init = replace(config.init, sha256=found.sha256)
    return replace(config, init=init), f"{path}, step {found.step}: {text}"


def _read(path: Path, say: Callable[[str], None]) -> _SourceWeights:
    """Read the newest undamaged weights at `path`; neither its config nor its code is used."""
    if (path / _EXPORTED).is_file():
        path = path / _EXPORTED
    if path.is_file():
        file = generator_file.read(path)
        generator = {"g": StoredTensors.of(file.weights)}
        return _SourceWeights(file.info.step, file_sha256(path), generator, generator)
    if (path / MANIFEST).is_file():
        return _from_checkpoint(read_checkpoint(path))
    found = CheckpointWriter(path / "checkpoints", say=say).newest()
    if found is None:
        raise CheckpointError(
            f"init.path {path} holds no weights; give a run folder with a checkpoint, "
            f"or a file of `{program_command()} export`"
        )
    return _from_checkpoint(found)


def _from_checkpoint(found: Checkpoint) -> _SourceWeights:
    sides = {side: stored for side, stored in found.groups.items() if side in ("g", "d")}
    if not sides:
        raise CheckpointError(f"init.path {found.path} holds a grid of cells; export one generator of it and give that")
    networks = {side: stored.under("net/") for side, stored in sides.items()}
    averages = {side: stored.under("ema/") for side, stored in sides.items()}
    return _SourceWeights(found.step, file_sha256(found.path / MANIFEST), networks, averages)


def _start(
    side: Side, config: RunConfig, trainer: Trainer, model: Model | None, found: _SourceWeights
) -> LoadedWeights:
    none = StoredTensors.of({})
    name = side.value
    initial = partial(_initial, side, config, trainer, model)
    average = found.averages.get(name, none)
    return start_from(trainer.players[name], found.networks.get(name, none), average, initial)


def _initial(side: Side, config: RunConfig, trainer: Trainer, model: Model | None) -> dict[str, Tensor]:
    """Return the state of the whole network at step 0; every rank constructs it."""
    source = trainer.batches.source
    data = build.Data(source, source)
    return build.maker(config, side, data, trainer.prior.device, model)().state_dict()


def _described(side: Side, taken: LoadedWeights) -> str:
    name = side.value.upper()
    if not taken.tensors:
        return f"{name} as initialised"
    average = " and the average" if taken.with_average else ""
    if not taken.left:
        return f"{name} all {taken.tensors} tensors{average}"
    shown = [f"{key} {_shapes(*both)}" for key, both in list(taken.left.items())[:_MOST_NAMED]]
    more = f", and {len(taken.left) - _MOST_NAMED} more" if len(taken.left) > _MOST_NAMED else ""
    total = taken.tensors + len(taken.left)
    rest = f"{', '.join(shown)}{more}"
    return f"{name} {taken.tensors} of {total} tensors{average}, as initialised: {rest}"


def _shapes(here: tuple[int, ...], there: tuple[int, ...] | None) -> str:
    return "(missing there)" if there is None else f"({_size(here)} here, {_size(there)} there)"


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a number"
