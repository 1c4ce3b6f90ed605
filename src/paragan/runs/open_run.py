"""Opening of a run for reading: a trainer at a checkpoint."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from paragan import build
from paragan.build import grid
from paragan.config import RunConfig, read_recipe
from paragan.config.sections import ANY
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError
from paragan.core.printable import to_printable
from paragan.engine.trainer import Trainer
from paragan.game.prior import Prior


def print_line(line: str) -> None:
    """Print a line to standard error, without control characters."""
    print(to_printable(line), file=sys.stderr)


@dataclass(frozen=True)
class OpenedRun:
    """A run at one of its checkpoints."""

    config: RunConfig
    trainer: Trainer

    def prior(self, seed: int | None) -> Prior:
        """Return the run's prior, with another seed if one is given."""
        return self.trainer.prior if seed is None else replace(self.trainer.prior, seed=seed)


def open_run(path: Path, num_images: int | None = None, trust: bool = False, best: bool = False) -> OpenedRun:
    """Open a run folder at its newest checkpoint.

    num_images: to score, instead of the run's number. trust: import the custom code that the config
    names. best: use the checkpoint with the best score instead of the newest.

    Raises `CheckpointError` if `path` is not a run folder or has no checkpoint yet. Opening writes
    nothing; scoring saves a judge that it had to train, if the folder is writable.
    """
    config_file = path / "config.yaml"
    if not config_file.is_file():
        hint = f"pass a run folder, made by `{program_command()} train`"
        raise CheckpointError(f"{path} {_why_no_run(path)}; {hint}")
    overrides = [] if num_images is None else [f"evaluation.num_images={num_images}"]
    config = read_recipe(str(config_file), overrides, ANY if trust else ())
    make = build.trainer if config.grid is None else grid.evolution
    trainer = make(config, path, print_line, lambda: False, reading=True)
    if not trainer.resume(best):
        hint = "train longer, or lower every.save_kimg"
        raise CheckpointError(f"{path} has no checkpoint yet; {hint}")
    return OpenedRun(config, trainer)


def _why_no_run(path: Path) -> str:
    if path.is_file():
        return "is a file, not a run folder"
    return "is a folder without config.yaml" if path.is_dir() else "does not exist"
