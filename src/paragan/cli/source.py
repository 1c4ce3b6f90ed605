"""What lies at a path, opened for reading: a run as a trainer at its newest checkpoint, or its generator alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from paragan import build
from paragan.build import grid
from paragan.config import RunConfig, load, loads
from paragan.config.config_reader import ANY
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError
from paragan.core.printable import to_printable
from paragan.engine.trainer import Trainer
from paragan.export.generator import GeneratorReader, load_generator
from paragan.export.sampler import Sampler
from paragan.game.prior import Prior


@dataclass(frozen=True)
class OpenedSource:
    config: RunConfig
    trainer: Trainer

    def prior(self, seed: int | None) -> Prior:
        """The run's prior, or the same with other draws."""
        return self.trainer.prior if seed is None else replace(self.trainer.prior, seed=seed)


def open_run(path: Path, num_images: int | None = None, trust: bool = False, best: bool = False) -> OpenedSource:
    """`num_images` is scored instead of the run's own number. trust: outside code that the config names is imported.
    best: at the checkpoint with the best score instead of the newest.

    Raises `CheckpointError` where `path` is no run folder or has no checkpoint yet. Nothing is written here; a
    score keeps the judge that it had to train, where the folder takes it.
    """
    config_file = path / "config.yaml"
    if not config_file.is_file():
        found = "a file" if path.is_file() else "a folder without config.yaml" if path.is_dir() else "nothing"
        raise CheckpointError(
            f"{path}: found {found}, expected a run folder as `{program_command()} train` makes it; "
            "name one, or train first"
        )
    words = [] if num_images is None else [f"score.num_images={num_images}"]
    config = load(str(config_file), words, ANY if trust else ())
    trainer = grid.trainer(config, path, _say, lambda: False, reading=True)
    if not trainer.resume(best):
        raise CheckpointError(f"{path}: found no checkpoint yet; train first, or lower every.save_kimg")
    return OpenedSource(config, trainer)


def open_generator(path: Path, trust: bool = False, best: bool = False) -> Sampler:
    """The generator of a run folder or exported file, as `paragan.load` opens it."""
    outside = ANY if trust else ()
    read, text = partial(load, outside=outside), partial(loads, outside=outside)
    return load_generator(path, GeneratorReader(read, text, lambda config: build.open_data(config), _say), best)


def _say(line: str) -> None:
    print(to_printable(line), file=sys.stderr)
