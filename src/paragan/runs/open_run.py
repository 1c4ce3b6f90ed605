"""Runs opened for reading: a trainer at a checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path

from paragan import build
from paragan.build import grid
from paragan.config import read_recipe
from paragan.config.sections import ANY
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError
from paragan.core.printable import to_printable
from paragan.engine.training_loop import TrainingLoop


def print_line(line: str) -> None:
    """Print a line to standard error, without control characters."""
    print(to_printable(line), file=sys.stderr)


def config_path(run: Path) -> Path:
    """Return the config file of a run folder. Raises `CheckpointError` for anything else."""
    path = run / "config.yaml"
    if path.is_file():
        return path
    found = "is a file, not a run folder" if run.is_file() else "does not exist"
    if run.is_dir():
        found = "is a folder without config.yaml"
    raise CheckpointError(f"{run} {found}; pass a run folder, made by `{program_command()} train`")


def steps_override(steps: int | None) -> list[str]:
    """Return the setting of a generator's solver steps as words over a config; None: unchanged."""
    return [] if steps is None else [f"model.steps={steps}"]


def open_run(
    path: Path, num_images: int | None = None, trust: bool = False, best: bool = False, *, steps: int | None = None
) -> TrainingLoop:
    """Return the trainer of a run folder at its newest checkpoint.

    steps: of the generator's solver, in place of `model.steps`. num_images: to score, instead of
    the run's number. trust: import the custom code that the config names. best: use the checkpoint
    with the best score instead of the newest.

    Raises `CheckpointError` if `path` is not a run folder or has no checkpoint yet. Opening writes
    nothing; scoring saves a judge that it had to train, if the folder is writable.
    """
    overrides = steps_override(steps)
    if num_images is not None:
        overrides.append(f"evaluation.num_images={num_images}")
    config = read_recipe(str(config_path(path)), overrides, ANY if trust else ())
    make = build.trainer if config.grid is None else grid.evolution
    trainer = make(config, path, print_line, lambda: False, reading=True)
    if not trainer.resume(best):
        hint = "train longer, or lower every.save_kimg"
        raise CheckpointError(f"{path} has no checkpoint yet; {hint}")
    return trainer
