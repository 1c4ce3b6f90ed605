"""Weights that a run may start from: of a run folder, a checkpoint, an exported file or files of other programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from paragan.checkpoint.layouts import ProjectWeights, published_weights
from paragan.checkpoint.manifest import MANIFEST
from paragan.checkpoint.reader import Checkpoint, file_sha256, read_checkpoint, saved_base
from paragan.checkpoint.weight_files import is_torch_file, open_weights, sha256_of_files
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import player_key
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError
from paragan.core.layout import Shape, StoredTensors, shapes_of
from paragan.core.types import Side
from paragan.export import generator_file
from paragan.game.options import PlayerOptions, WeightsOptions
from paragan.layers.adapter import adapter_names, base_names

_EXPORTED = "generator.safetensors"


@dataclass(frozen=True)
class PlayerWeights:
    """Tensors by the names of a player's network. average: may be empty. published: None if of no known project."""

    weights: StoredTensors
    average: StoredTensors
    published: ProjectWeights | None


@dataclass(frozen=True, kw_only=True)
class SourceWeights:
    """Weights of both networks, each tensor read on access.

    sha256: of the manifest or the files. networks, averages: tensors by side, g and d. step: None if unknown.
    is_of_either: whether `networks` has the same ones for G and D, as the file does not say whose they are.
    """

    sha256: str
    networks: Mapping[str, StoredTensors]
    averages: Mapping[str, StoredTensors]
    step: int | None = None
    is_of_either: bool = False

    def of(self, side: Side, options: PlayerOptions, net: nn.Module, model: str) -> PlayerWeights:
        """Return the weights for a player. model: its name, for weights of a project that fit several models."""
        empty = StoredTensors.of({})
        prefix = "" if options.init is None else options.init.prefix
        stored = self.networks.get(side.value, empty).under(prefix)
        average = self.averages.get(side.value, empty).under(prefix)
        published = published_weights(stored, _plain_shapes(net), None if side.is_extra else side, model)
        if published is not None:
            weights = StoredTensors.of(published.tensors)
        else:
            # what does not train will never be averaged: it takes the average, whose samples are better
            weights = average if options.trains_part and average else stored
        return PlayerWeights(_named_as(net, weights), _named_as(net, average), published)

    def check_unchanged(self, key: str, path: object, sha256: str | None) -> None:
        """Raise `CheckpointError` if these are not the weights of the setting `key` with that sha256."""
        if sha256 not in (None, self.sha256):
            raise CheckpointError(
                f"{key}.path {path} has changed: its sha256 is {self.sha256[:12]}…, and {key}.sha256 "
                f"is {str(sha256)[:12]}…; pass the unchanged file, or start anew with --fresh"
            )

    def check_prefix(self, key: str, side: Side, prefix: str) -> None:
        """Raise `CheckpointError` if a player has no weights under a prefix. key: setting and files."""
        stored = self.networks.get(side.value)
        if stored is None:
            raise CheckpointError(f"{key} has no weights of this player; give a run folder, or a safetensors file")
        if not stored.under(prefix):
            first = sorted({name.partition(".")[0] for name in stored})[:6]
            raise CheckpointError(
                f"{key} has no tensor under the prefix {prefix!r}; its names begin with {', '.join(first)}"
            )


def read_source(path: Path, key: str, log: Callable[[str], None]) -> SourceWeights:
    """Read the newest undamaged weights at `path`; neither its config nor its code is used.

    key: the setting: init, g.init, … Raises `CheckpointError` if there are none.
    """
    if (path / _EXPORTED).is_file():
        path = path / _EXPORTED
    if path.is_file():
        if is_torch_file(path) or generator_file.is_foreign(path):
            networks = dict.fromkeys(("g", "d"), open_weights([path], f"{key}.path"))
            return SourceWeights(sha256=file_sha256(path), networks=networks, averages={}, is_of_either=True)
        try:
            file = generator_file.read(path)
        except CheckpointError as error:
            raise CheckpointError(f"{key}.path {error}") from None
        generator = {"g": StoredTensors.of(file.weights)}
        return SourceWeights(sha256=file_sha256(path), networks=generator, averages=generator, step=file.info.step)
    if (path / MANIFEST).is_file():
        return _of_checkpoint(read_checkpoint(path), key)
    checkpoint = CheckpointWriter(folder=path / "checkpoints", log=log).newest()
    if checkpoint is None:
        raise CheckpointError(
            f"{key}.path {path} holds no weights; give a run folder with a checkpoint, "
            f"or a file of `{program_command()} export`"
        )
    return _of_checkpoint(checkpoint, key)


def read_player_source(side: Side, options: WeightsOptions, log: Callable[[str], None]) -> SourceWeights:
    """Read the weights that a player's `init` names."""
    key = f"{player_key(side.value)}.init"
    paths = [Path(path) for path in options.paths]
    if len(paths) == 1 and paths[0].is_dir():
        return read_source(paths[0], key, log)
    weights = {side.value: open_weights(paths, f"{key}.path")}
    return SourceWeights(sha256=sha256_of_files(paths), networks=weights, averages={})


def _of_checkpoint(checkpoint: Checkpoint, key: str) -> SourceWeights:
    sides = {side: stored for side, stored in checkpoint.groups.items() if not side.startswith("cell-")}
    if not sides:
        raise CheckpointError(
            f"{key}.path {checkpoint.path} holds a grid of cells; export one generator of it and give that"
        )
    requested = [side for side in sides if key in ("init", f"{player_key(side)}.init")]
    partial = [side for side in requested if saved_base(checkpoint.values, side)]
    if partial:
        raise CheckpointError(
            f"{key}.path {checkpoint.path} holds only the trained part of {' and '.join(partial)}; "
            "export the run, which merges it, and give the exported file"
        )
    return SourceWeights(
        sha256=file_sha256(checkpoint.path / MANIFEST),
        networks={side: stored.under("net/") for side, stored in sides.items()},
        averages={side: stored.under("ema/") for side, stored in sides.items()},
        step=checkpoint.step,
    )


def _plain_shapes(net: nn.Module) -> dict[str, Shape]:
    """Return the shapes of a network by its names without adapters, and without the wrapper of one from memory."""
    plain_name_of = {name: base for base, name in base_names(net).items()}
    shapes = shapes_of(net.state_dict())
    return {plain_name_of.get(name, name).removeprefix("net."): shape for name, shape in shapes.items()}


def _named_as(net: nn.Module, stored: StoredTensors) -> StoredTensors:
    """Return tensors by the names of a network: `w` may be `net.w` (from memory) or `parametrizations.w.original`."""
    trained = [name for name, _ in net.named_parameters() if name not in adapter_names(net)]
    is_inside = all(name.startswith("net.") for name in trained) and not any(name in stored for name in trained)
    inside = "net." if is_inside else ""
    base = base_names(net)
    file_names = {base.get(inside + name, inside + name): name for name in stored}
    shapes = {name: stored.shapes[file_name] for name, file_name in file_names.items()}
    return StoredTensors(shapes, lambda name, box: stored.read(file_names[name], box))
