"""The generator's part of a checkpoint: the other player and the optimisers stay on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from paragan.checkpoint.best import Best
from paragan.checkpoint.reader import NewerFormat, read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.errors import CheckpointError


@dataclass(frozen=True)
class GeneratorState:
    """weights: the averaged generator's where there is one, by plain name. values: as in the checkpoint."""

    weights: dict[str, Tensor]
    values: dict[str, Any]
    path: Path


def newest(folder: Path, say: Callable[[str], None]) -> GeneratorState:
    """Of the newest checkpoint in a run folder whose generator is undamaged; `say` hears of those passed over."""
    checkpoints = CheckpointWriter(folder / "checkpoints").paths()
    for path in reversed(checkpoints):
        try:
            return _read(path)
        except NewerFormat:
            raise
        except CheckpointError as error:
            say(f"{error}; trying the one before")
    if checkpoints:
        raise CheckpointError(f"{folder}: no checkpoint with an undamaged generator is left; train anew with --fresh")
    raise CheckpointError(f"{folder}: found no checkpoint yet; train first, or lower every.save_kimg")


def best(folder: Path) -> GeneratorState:
    """Of the checkpoint with the best score in a run folder."""
    return _read(Best(folder / "best").path())


def _read(path: Path) -> GeneratorState:
    found = read_checkpoint(path, only="g")
    stored = found.groups["g"]
    weights = stored.under("ema/") or stored.under("net/")
    return GeneratorState(dict(weights), dict(found.values), path)
