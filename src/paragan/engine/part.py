"""The generator's part of a checkpoint: the other player and the optimisers stay on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from paragan.core.errors import CheckpointError
from paragan.engine.checkpoint import FORMAT, MANIFEST, Checkpoints, json_of, sha256_of

_GENERATOR = "g.safetensors"


@dataclass(frozen=True)
class Part:
    """weights: the averaged generator's where there is one, by plain name. values: as in the checkpoint."""

    weights: dict[str, Tensor]
    values: dict[str, Any]
    path: Path


def newest(folder: Path, say: Callable[[str], None]) -> Part:
    """Of the newest checkpoint in a run folder whose generator is undamaged; `say` hears of those passed over."""
    checkpoints = Checkpoints(folder / "checkpoints").paths()
    for path in reversed(checkpoints):
        try:
            return _read(path)
        except CheckpointError as error:
            say(f"{error}; trying the one before")
    if checkpoints:
        raise CheckpointError(f"{folder}: no checkpoint with an undamaged generator is left; train anew with --fresh")
    raise CheckpointError(f"{folder}: found no checkpoint yet; train first, or lower every.save_kimg")


def _read(path: Path) -> Part:
    manifest = json_of(path / MANIFEST)
    listed = manifest.get("files")
    if manifest.get("format") != FORMAT or not isinstance(listed, dict):
        found = f"format {manifest.get('format')!r}"
        raise CheckpointError(f"checkpoint {path}: found {found}, expected {FORMAT}; use the paragan that wrote it")
    for name in ("state.json", _GENERATOR):
        if not (path / name).is_file() or sha256_of(path / name) != listed.get(name):
            raise CheckpointError(f"checkpoint {path}: {name} is missing or damaged (its sha256 is not the manifest's)")
    values = json_of(path / "state.json").get("values")
    return Part(_weights(path / _GENERATOR), values if isinstance(values, dict) else {}, path)


def _weights(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            prefix = "ema/" if any(name.startswith("ema/") for name in names) else "net/"
            return {name.removeprefix(prefix): file.get_tensor(name) for name in names if name.startswith(prefix)}
    except (SafetensorError, OSError, TypeError, ValueError, RuntimeError):
        raise CheckpointError(f"checkpoint {path}: found another file, expected safetensors") from None
