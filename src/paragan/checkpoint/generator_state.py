"""Generator of a checkpoint, read without the discriminator and the optimizers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from paragan.checkpoint.best import Best
from paragan.checkpoint.reader import read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.errors import CheckpointError


@dataclass(frozen=True)
class GeneratorState:
    """A generator's weights, averaged ones if available. values: the checkpoint's."""

    weights: dict[str, Tensor]
    values: dict[str, Any]
    path: Path


def read_newest(folder: Path, say: Callable[[str], None]) -> GeneratorState:
    """Read the newest checkpoint of a run folder whose generator is undamaged.

    say: receives a line for every damaged checkpoint that is skipped.
    """
    state = CheckpointWriter(folder=folder / "checkpoints", say=say).read_newest(_read)
    if state is None:
        raise CheckpointError(f"{folder}: no checkpoint yet; train first, or lower every.save_kimg")
    return state


def read_best(folder: Path) -> GeneratorState:
    """Read the checkpoint with the best score of a run folder."""
    return _read(Best(folder / "best").path())


def _read(path: Path) -> GeneratorState:
    checkpoint = read_checkpoint(path, only="g")
    stored = checkpoint.groups["g"]
    weights = stored.under("ema/") or stored.under("net/")
    return GeneratorState(dict(weights), dict(checkpoint.values), path)
