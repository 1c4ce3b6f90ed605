"""One player's network of a checkpoint, read without the other player and the optimizers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from paragan.checkpoint.best import Best
from paragan.checkpoint.reader import read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.errors import CheckpointError


@dataclass(frozen=True)
class GeneratorState:
    """A network's weights, averaged ones if available. values: the checkpoint's."""

    weights: dict[str, Tensor]
    values: dict[str, Any]
    path: Path


def read_newest(folder: Path, log: Callable[[str], None], player: str = "g") -> GeneratorState:
    """Read the newest checkpoint of a run folder whose network of a player is undamaged.

    log: receives a line for every damaged checkpoint that is skipped.
    """
    state = CheckpointWriter(folder=folder / "checkpoints", log=log).read_newest(partial(_read, player))
    if state is None:
        raise CheckpointError(f"{folder}: no checkpoint yet; train first, or lower every.save_kimg")
    return state


def read_best(folder: Path, player: str = "g") -> GeneratorState:
    """Read the checkpoint with the best score of a run folder."""
    return _read(player, Best(folder / "best").path())


def _read(player: str, path: Path) -> GeneratorState:
    checkpoint = read_checkpoint(path, only=player)
    stored = checkpoint.groups[player]
    weights = stored.under("ema/") or stored.under("net/")
    return GeneratorState(dict(weights), dict(checkpoint.values), path)
