"""Initial weights from a run folder, one of its checkpoints, or an exported file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paragan.checkpoint.manifest import MANIFEST
from paragan.checkpoint.reader import Checkpoint, file_sha256, read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError
from paragan.core.pieces import StoredTensors
from paragan.export import generator_file

_EXPORTED = "generator.safetensors"


@dataclass(frozen=True)
class SourceWeights:
    """Initial weights of both networks.

    networks, averages: tensors by side, g and d. sha256: of the manifest or the exported file.
    """

    step: int
    sha256: str
    networks: Mapping[str, StoredTensors]
    averages: Mapping[str, StoredTensors]


def read_source_weights(path: Path, say: Callable[[str], None]) -> SourceWeights:
    """Read the newest undamaged weights at `path`; neither its config nor its code is used."""
    if (path / _EXPORTED).is_file():
        path = path / _EXPORTED
    if path.is_file():
        file = generator_file.read(path)
        generator = {"g": StoredTensors.of(file.weights)}
        return SourceWeights(file.info.step, file_sha256(path), generator, generator)
    if (path / MANIFEST).is_file():
        return _of(read_checkpoint(path))
    found = CheckpointWriter(path / "checkpoints", say=say).newest()
    if found is None:
        raise CheckpointError(
            f"init.path {path} holds no weights; give a run folder with a checkpoint, "
            f"or a file of `{program_command()} export`"
        )
    return _of(found)


def _of(found: Checkpoint) -> SourceWeights:
    sides = {side: stored for side, stored in found.groups.items() if side in ("g", "d")}
    if not sides:
        raise CheckpointError(f"init.path {found.path} holds a grid of cells; export one generator of it and give that")
    networks = {side: stored.under("net/") for side, stored in sides.items()}
    averages = {side: stored.under("ema/") for side, stored in sides.items()}
    return SourceWeights(found.step, file_sha256(found.path / MANIFEST), networks, averages)
